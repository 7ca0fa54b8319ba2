"""Import gymnax without the plotting packages that it never needs to step an environment.

gymnax 1.0 imports seaborn (and with it pandas and scipy.stats), matplotlib and an MNIST loader that needs the
undeclared package `six`, at the top of modules that define environments. They are used only by `render` functions
that we do not call. While gymnax is imported, placeholders stand in `sys.modules` for those that are not imported yet;
they leave it afterwards, and forward to the real package if somebody asks one of them for something.

Importing gymnax starts JAX's backend (it builds arrays at import): set XLA flags before.
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
_UNUSED = ("matplotlib", "matplotlib.pyplot", "matplotlib.colors", "seaborn", "gymnax.utils.load_mnist")


class _Placeholder(types.ModuleType):
    """Stands for a module until an attribute is asked for; then the real one is imported."""

    __path__: list[str] = []  # lets `import matplotlib.pyplot` pass; its submodules are placeholders too

    def __getattr__(self, name: str):
        if name.startswith("__"):  # the import machinery asks for these
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
    """`f` without jax_enable_x64, under which half of gymnax's environments mix int32 with int64 and fail."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(False):
            return f(*args, **kwargs)

    return call


@functools.cache
def gymnax() -> types.ModuleType:
    """The package `gymnax`."""
    with _placeholders(), jax.enable_x64(False):  # it builds arrays at import
        importlib.import_module("gymnax.registration")
    return sys.modules["gymnax"]


def knows(name: str) -> bool:
    """Whether a user has registered `name` in gymnax; does not import it."""
    registration = sys.modules.get("gymnax.registration")
    return registration is not None and name in registration._registry and name not in registration._BUILTIN_ENV_IDS
