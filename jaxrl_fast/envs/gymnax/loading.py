"""Import gymnax without its plotting packages.

gymnax 1.0 imports seaborn (with pandas and scipy.stats), matplotlib and an MNIST loader with the
undeclared package `six` where it defines environments; only its `render` functions need them.
Importing gymnax starts JAX's backend: set XLA flags before.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax

INSTALL = "pip install 'gymnax>=1.0.1,<2'"  # a plain dependency of ours
_UNUSED = ("matplotlib", "matplotlib.pyplot", "matplotlib.colors",
           "seaborn", "gymnax.utils.load_mnist")


class _Placeholder(types.ModuleType):
    """Stands for a module during gymnax's import; later uses of it import the real one."""

    __path__: list[str] = []  # lets `import matplotlib.pyplot` pass, as a placeholder too

    def __getattr__(self, name: str):
        if name.startswith("__"):  # asked by the import machinery
            raise AttributeError(name)
        child = sys.modules.get(f"{self.__name__}.{name}")
        if isinstance(child, _Placeholder):
            return child
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _placeholders() -> Iterator[None]:
    ours = {name: _Placeholder(name) for name in _UNUSED if name not in sys.modules}
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name, module in ours.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def in_32_bits(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` without jax_enable_x64, under which half of gymnax's environments fail."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(False):
            return f(*args, **kwargs)

    return call


@functools.cache
def gymnax() -> types.ModuleType:
    """Return the package `gymnax`."""
    with _placeholders(), jax.enable_x64(False):  # it builds arrays at import
        importlib.import_module("gymnax.registration")
    return sys.modules["gymnax"]


def registered() -> tuple[str, ...]:
    """Return the names that a user registered in gymnax; does not import it."""
    registration = sys.modules.get("gymnax.registration")
    if registration is None:
        return ()
    return tuple(x for x in registration._registry if x not in registration._BUILTIN_ENV_IDS)


def knows(name: str) -> bool:
    """Return whether a user registered `name` in gymnax; does not import it."""
    return name in registered()
