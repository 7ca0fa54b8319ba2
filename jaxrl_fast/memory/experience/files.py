"""A memory as files: the store by orbax, its layout as JSON beside it. Never pickle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import values
from jaxrl_fast.errors import ConfigError, WriteError, brief
from jaxrl_fast.files import folders, forms
from jaxrl_fast.files.checksums import verify_checksums, write_checksums
from jaxrl_fast.memory.experience.filled import Filled, layout, refuse_sequences, row_shapes
from jaxrl_fast.memory.prioritized import PrioritizedMemory, converted
from jaxrl_fast.memory.ring import Ring, Row, UniformMemory, successors_of
from jaxrl_fast.memory.transitions import Transition, TransitionMemory

FORMAT = 1
ROWS = {"Row": Row, "Transition": Transition}
EXPONENTS = ("alpha", "epsilon")  # inputs of the priorities
MEMORIES = {cls.__name__: cls for cls in (UniformMemory, PrioritizedMemory, TransitionMemory)}
LAYOUT = {
    "format": forms.ANY, "layout": {"class": str, "capacity": int,
                                    "num_steps": int, "num_envs": int}, "written": int,
    "kind": str, "rows": dict, "priorities?": {"*": forms.NUMBER}, "truncation_interval?": int,
}  # fmt: skip
SIZES = ("capacity", "num_steps", "num_envs")


def save_memory(path: str | Path, filled: Filled) -> None:
    """Write `filled` to the new folder `path`, without `Row.extras`.

    The folder appears when it is complete: until then it is `.NAME.unfinished` beside it.
    """
    import orbax.checkpoint as ocp

    path, kind = folders.folder_path("path", path).absolute(), type(filled.rows).__name__
    refuse_sequences("filled", filled.memory)
    if path.exists():
        raise ConfigError("path", str(path), "a folder that does not exist yet")
    if ROWS.get(kind) is not type(filled.rows):
        raise ConfigError("rows", kind, f"rows of a replay memory ({' or '.join(ROWS)})")
    logging.getLogger("absl").setLevel(logging.ERROR)
    stored = filled.rows._replace(extras=()) if kind == "Row" else filled.rows
    store = stored if filled.rows is filled.store else filled.store._replace(rows=stored)
    rows = jax.tree.map(lambda x: [str(x.dtype), *x.shape], row_shapes(stored))._asdict()
    for name in ("extras", "next_obs") if kind == "Row" else ():
        rows.pop(name)
    about = {"format": FORMAT, "layout": layout(filled.memory), "written": int(filled.w),
             "kind": kind, "rows": rows}
    about["id"] = uuid.uuid4().hex
    if successors_of(stored) is not None:
        about["truncation_interval"] = filled.memory.truncation_interval
    if isinstance(filled.memory, PrioritizedMemory):
        about["priorities"] = {name: float(getattr(filled.memory, name)) for name in EXPONENTS}
    folders.check_writable("path", path)
    part = path.with_name(f".{path.name}.unfinished")
    with folders.hold_lock("path", part, create=True):
        shutil.rmtree(part / "store", ignore_errors=True)  # of an interrupted call
        # else orbax's threads hang
        here = ocp.AsyncOptions(create_directories_asynchronously=False)
        try:
            with ocp.StandardCheckpointer(async_options=here) as checkpointer:
                checkpointer.save(part / "store", store)
            (part / "layout.json").write_text(json.dumps(about, indent=2) + "\n")
            write_checksums(part)
        except Exception as error:  # orbax raises plain ones too
            raise WriteError(part, error) from error
    part.rename(path)


def load_memory(path: str | Path, memory: Ring, resize: bool = False) -> Filled:
    """Read a memory of `save_memory` into `memory`, whose layout must be the file's.

    resize: take the number of rows, environments and rows a block from the file, for offline
    learning. Priorities with another exponent are converted to `memory`'s. Raises ConfigError, with
    both layouts, if they differ. To change the layout: `fill(other, rows_of(loaded))`.
    """
    path = Path(path).absolute()
    about = _read(path)
    if resize:
        memory = dataclasses.replace(memory, **{name: about["layout"][name] for name in SIZES})
    if "truncation_interval" in about:
        memory = dataclasses.replace(memory, truncation_interval=about["truncation_interval"])
    if layout(memory) != about["layout"]:
        hint = "; resize=True takes the sizes from the file" if not resize else ""
        raise ConfigError("memory", _line(layout(memory)),
                          f"{_line(about['layout'])}, as {path} was written{hint}")
    store = _restore(path, memory, about)
    if isinstance(memory, PrioritizedMemory):
        store = converted(dataclasses.replace(memory, **about["priorities"]), memory, store)
    return Filled(memory, store, about["written"])


def identity(path: str | Path) -> str:
    """Return the identity of a saved memory, new at each call of `save_memory`."""
    path = Path(path).absolute()
    _read(path)
    return hashlib.sha256((path / "layout.json").read_bytes()).hexdigest()[:16]


def open_memory(path: str | Path, outline: bool = False) -> Filled:
    """Read a saved memory in its own layout, with batches of 1; outline: shapes alone."""
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError("path", path, "the folder of a saved memory")
    path = Path(values.expand_home(path)).absolute()
    about = _read(path)
    sizes = {name: value for name, value in about["layout"].items() if name != "class"}
    sizes |= {name: about[name] for name in ("truncation_interval",) if name in about}
    try:
        memory = MEMORIES[about["layout"]["class"]](**sizes, batch_size=1, **about["priorities"])
        store = jax.eval_shape(memory.init, about["rows"]) if outline else None
    except Exception as error:  # JAX raises too, if sizes do not fit
        raise _damaged(path, error) from error
    store = store if outline else _restore(path, memory, about)
    return Filled(memory, store, about["written"])


def _restore(path: Path, memory: Ring, about: dict[str, Any]) -> Any:
    import orbax.checkpoint as ocp

    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        verify_checksums(path)
        shapes = jax.eval_shape(memory.init, about["rows"])
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), shapes)
        with ocp.StandardCheckpointer() as checkpointer:
            store = checkpointer.restore(path / "store", like)
        if any(a.shape != b.shape for a, b in zip(jax.tree.leaves(store),
                                                  jax.tree.leaves(like), strict=True)):
            raise ValueError("its shapes are not those of layout.json")
    except Exception as error:  # orbax raises plain ones too
        raise _damaged(path, error) from error
    return store


def _read(path: Path) -> dict[str, Any]:
    """Return layout.json, with `rows` as shapes [T, B, ...] for `Memory.init`."""
    file = Path(values.path("path", str(path))) / "layout.json"
    if not file.is_file():
        raise ConfigError("path", str(path),
                          "a folder that save_memory has written, with its layout.json")
    about = forms.read_json(file, "path", "the layout.json of a memory", LAYOUT)
    try:
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']!r}, this version reads {FORMAT}")
        sizes, kind = about["layout"], ROWS[about["kind"]]
        struct = lambda x: jax.ShapeDtypeStruct((sizes["num_steps"], sizes["num_envs"], *x[1:]),
                                                jnp.dtype(x[0]))
        rows = jax.tree.map(struct, about["rows"], is_leaf=lambda x: isinstance(x, list))
        if "truncation_interval" in about:
            rows["next_obs"] = rows["obs"]
        if not all(isinstance(sizes[name], int) and sizes[name] > 0
                   for name in SIZES) or not 0 <= int(about["written"]) < 2**31:
            raise ValueError(f"sizes of {', '.join(SIZES)} and written that cannot be")
        priorities = {name: float(x) for name, x in about.get("priorities", {}).items()
                      if name in EXPONENTS}
        return about | {"rows": kind(**rows), "written": int(about["written"]),
                        "priorities": priorities}
    except Exception as error:  # sizes and dtypes that JAX or NumPy refuse
        raise _damaged(path, error) from error


def _line(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())


def _damaged(path: Path, error: Exception) -> ConfigError:
    return ConfigError("path", str(path), "a whole memory; reading it failed: "
                                          f"{getattr(error, 'valid', None) or brief(error)}")
