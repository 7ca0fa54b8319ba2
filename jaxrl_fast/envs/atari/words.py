"""A lane's fields in few words, for a kernel's loads and stores.

Triton's compiler takes time for each access of a kernel, by the square of the kernel's size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

# Fields by the bits that they need; all of these are 0 or more, others take a word.
_BY_BITS = {
    1: "n z c v d i late refp0 refp1 enam0 enam1 enabl oldbl vdelp0 vdelp1 vdelbl resmp0 resmp1 "
    "skip0 skip1 mirror comb stars loss dumped pal combs partial done bad turn",
    2: "star kind",
    4: "shift hmp0 hmp1 hmm0 hmm1 hmbl banks",
    8: "a x y sp timer out_a dir_a out_b dir_b left vsync vblank nusiz0 nusiz1 colup0 colup1 "
       "colupf "
    "colubk ctrlpf grp0 grp1 old0 old1 x0 x1 xm0 xm1 xbl extra port_a port_b fire0 fire1",
    9: "top height limit",
    13: "first",
    15: "collisions",
    16: "pc s0 s1 s2 s3 steps",
    20: "pf",
}
_BITS = {name: bits for bits, names in _BY_BITS.items() for name in names.split()}
_WORD = 32
_ALL = 0xFFFFFFFF


class Layout:
    """Places of a tree's leaves in words: a leaf's name is its field's."""

    def __init__(self, tree: Any):
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        widths = [_BITS.get(path[-1].name, _WORD) for path, _ in leaves]
        filled: list[int] = []
        self._names = {path[-1].name: i for i, (path, _) in enumerate(leaves)}
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

        return jax.tree.unflatten(self._structure,
                                  [_cut(words[at], *place) for at, *place in self._places])

    def field(self, word: Callable[[int], jax.Array], name: str) -> jax.Array:
        """Return one field of the words word(0), word(1), ... AttributeError for another name."""
        if name not in self._names:
            raise AttributeError(name)
        at, start, width = self._places[self._names[name]]
        return _cut(word(at), start, width)

    def changed(self, words: list[jax.Array], fields: dict[str, jax.Array]) -> list[jax.Array]:
        """Return the words with other values of some fields."""
        found, taken = list(words), [0] * self.count
        places = {name: self._places[self._names[name]] for name in fields}
        for word, start, width in places.values():
            taken[word] |= ((1 << width) - 1) << start
        for word, bits in enumerate(taken):
            if bits:
                found[word] = found[word] & _keep_mask(bits) if bits != _ALL else 0
        for name, (word, start, _) in places.items():
            found[word] = found[word] | fields[name] << start
        return found


def _keep_mask(bits: int) -> int:
    """Return the int32 whose bits are the others."""
    mask = ~bits & _ALL
    return mask - (mask >> 31 << 32)


def _cut(word: Any, start: int, width: int) -> jax.Array:
    return word if width == _WORD else (word >> start) & ((1 << width) - 1)


class Packed:
    """A named tuple of fields that holds its words: a field is cut out when it is read.

    A kernel's loop then carries few registers, and a field that one branch needs takes a register
    there alone. Functions that read attributes and call `_replace` accept it as the tuple.
    """

    def __init__(self, layout: Layout, words: list[jax.Array]):
        self._layout, self._words = layout, words

    def __getattr__(self, name: str) -> jax.Array:
        return self._layout.field(self._words.__getitem__, name)

    def _replace(self, **fields: jax.Array) -> Packed:
        return Packed(self._layout, self._layout.changed(self._words, fields))


jax.tree_util.register_pytree_node(
    Packed,
    lambda packed: (packed._words, packed._layout),
    lambda layout, words: Packed(layout, [*words]),
)


@jax.tree_util.register_static
class Stored:
    """A named tuple of fields in rows [..., N] of a reference; a field is loaded when read.

    The loop of a kernel then holds no field in a register.
    """

    def __init__(self, layout: Layout, rows: Any, first: Any, lane: jax.Array):
        self._layout, self._rows, self._first, self._lane = layout, rows, first, lane

    def __getattr__(self, name: str) -> jax.Array:
        return self._layout.field(lambda i: self._rows[self._first + i, self._lane], name)


@functools.cache
def _layout_of(kind: type) -> Layout:
    return Layout(kind(*kind._fields))


def pack(fields: Any) -> Packed:
    """Return a named tuple of int32 arrays as its words."""
    layout = _layout_of(type(fields))
    return Packed(layout, layout.pack(fields))


def unpack(held: Packed) -> Any:
    """Return the named tuple of `packed`."""
    return held._layout.unpack(held._words)
