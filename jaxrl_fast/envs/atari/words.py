"""A lane's fields in few words, for a kernel's loads and stores.

Triton's compiler takes time for each access of a kernel, by the square of the kernel's size.
"""

from __future__ import annotations

from typing import Any

import jax

# Fields by the bits that they need; all of these are 0 or more, others take a word.
_BY_BITS = {
    1: "n z c v d i late refp0 refp1 enam0 enam1 enabl oldbl vdelp0 vdelp1 vdelbl resmp0 resmp1 "
    "skip0 skip1 mirror comb stars loss dumped pal combs partial done bad",
    2: "star kind",
    4: "shift hmp0 hmp1 hmm0 hmm1 hmbl banks",
    8: "a x y sp timer out_a dir_a out_b dir_b left vsync vblank nusiz0 nusiz1 colup0 colup1 colupf "
    "colubk ctrlpf grp0 grp1 old0 old1 x0 x1 xm0 xm1 xbl extra port_a port_b fire0 fire1",
    9: "top height limit",
    13: "first",
    15: "collisions",
    16: "pc s0 s1 s2 s3 steps",
    20: "pf",
}
_BITS = {name: bits for bits, names in _BY_BITS.items() for name in names.split()}
_WORD = 32


class Layout:
    """Places of a tree's leaves in words: a leaf's name is its field's."""

    def __init__(self, tree: Any):
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        widths = [_BITS.get(path[-1].name, _WORD) for path, _ in leaves]
        filled: list[int] = []
        self._places: list[tuple[int, int, int]] = [(0, 0, 0)] * len(leaves)
        for leaf in sorted(range(len(leaves)), key=lambda i: -widths[i]):
            width = widths[leaf]
            word = next((i for i, at in enumerate(filled) if at + width <= _WORD), len(filled))
            filled += [0] * (word == len(filled))
            self._places[leaf] = word, filled[word], width
            filled[word] += width
        self.count = len(filled)

    def pack(self, tree: Any) -> list[jax.Array]:
        """Return `count` words, int32, of a tree of int32 arrays of one shape."""
        words: list[Any] = [0] * self.count
        for value, (word, start, _) in zip(jax.tree.leaves(tree), self._places, strict=True):
            words[word] = words[word] | value << start
        return words

    def unpack(self, words: Any) -> Any:
        """Return the tree whose words these are."""

        def field(word: int, start: int, width: int) -> jax.Array:
            return words[word] if width == _WORD else (words[word] >> start) & ((1 << width) - 1)

        return jax.tree.unflatten(self._structure, [field(*place) for place in self._places])
