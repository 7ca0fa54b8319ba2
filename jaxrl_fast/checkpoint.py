"""Checkpoints by orbax: `last` holds whole RunStates, `best` the agent that evaluated best. Never pickle."""

from __future__ import annotations

import contextlib
import logging
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import hosts, older_states
from jaxrl_fast.errors import ConfigError

FORMAT = 2


class Checkpoints:
    """The checkpoints under `folder`, written asynchronously; each write is atomic and keeps only the newest.

    What is saved must be a snapshot that no later program is given as a donated argument: orbax reads it from
    another thread.
    """

    def __init__(self, folder: Path, read_only: bool = False):
        self.folder, self.read_only, self._managers = Path(folder), read_only, {}

    def _manager(self, which: str):
        if which not in self._managers:
            logging.getLogger("absl").setLevel(logging.CRITICAL)  # what fails is raised, too
            import orbax.checkpoint as ocp

            options = ocp.CheckpointManagerOptions(
                max_to_keep=1, create=not self.read_only, cleanup_tmp_directories=not self.read_only,
                read_only=self.read_only, enable_async_checkpointing=not self.read_only,
            )  # fmt: skip
            handlers = {"state": ocp.StandardCheckpointHandler(), "meta": ocp.JsonCheckpointHandler()}
            self._managers[which] = ocp.CheckpointManager(
                (self.folder / which).absolute(), options=options, item_handlers=handlers
            )
            # orbax would ask JAX whether to stop with row numbers, where the loop asks with a count of its own
            self._managers[which].reached_preemption = lambda step: False
        return self._managers[which]

    def save(self, which: str, iteration: int, state: Any, meta: dict[str, Any]) -> None:
        """Start writing; a write of the same kind that is still under way is finished first.

        On several hosts any: orbax numbers its barriers, and two writes at a time would meet at each other's.
        """
        import orbax.checkpoint as ocp

        manager = self._manager(which)
        self.wait() if hosts.several() else manager.wait_until_finished()
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(_without_empty(state)), meta=ocp.args.JsonSave({"format": FORMAT, **meta})
        )
        manager.save(iteration, args=args, force=True)

    def latest(self, which: str) -> int | None:
        if not (self.folder / which).is_dir():
            return None
        return self._manager(which).latest_step()

    def meta(self, which: str, iteration: int) -> dict[str, Any]:
        import orbax.checkpoint as ocp

        with _damage(self.folder / which):
            meta = self._manager(which).restore(iteration, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
            if meta.get("format") != FORMAT:
                raise ValueError(f"format {meta.get('format')!r}, this version reads {FORMAT}")
            return dict(meta)

    def restore(self, which: str, iteration: int, like: Any) -> Any:
        """The state as `like`: shapes, dtypes and shardings. Another structure or shape is an error."""
        import orbax.checkpoint as ocp

        with _damage(self.folder / which):
            manager = self._manager(which)
            form = older_states.as_written(like, manager.item_metadata(iteration)["state"].tree)
            args = ocp.args.Composite(state=ocp.args.StandardRestore(_without_empty(form)))
            state = older_states.completed(_with_empty(manager.restore(iteration, args=args)["state"], form), like)
            for (path, want), got in zip(jax.tree.leaves_with_path(like), jax.tree.leaves(state), strict=True):
                if want.shape != got.shape or want.dtype != got.dtype:
                    name = jax.tree_util.keystr(path)
                    raise ValueError(f"{name} is {got.dtype}{got.shape}, not {want.dtype}{want.shape}")
            return state

    def wait(self) -> None:
        for manager in self._managers.values():
            manager.wait_until_finished()

    def close(self) -> None:
        for manager in self._managers.values():
            manager.wait_until_finished()
            manager.close()
        self._managers = {}


@contextlib.contextmanager
def _damage(folder: Path):
    """Whatever orbax says of a file that is missing, cut short or not its own becomes one clear error."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # orbax raises plain ones too
        _silence_other_reads()
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            "checkpoint", str(folder), f"a whole checkpoint that this run wrote; reading it failed: {first[:200]}"
        ) from error


def _silence_other_reads() -> None:
    """Orbax reads arrays side by side. Those that failed beside the first are thrown away when Python ends, each with a page
    of what one line has said."""
    import orbax.checkpoint as ocp

    shown, package = sys.unraisablehook, str(Path(ocp.__file__).parent)
    if getattr(shown, "__module__", None) == __name__:
        return  # it is there already

    def silent(unraisable: Any) -> None:
        code = getattr(unraisable.object, "cr_code", None)  # of a coroutine
        if code is None or not code.co_filename.startswith(package):
            shown(unraisable)

    sys.unraisablehook = silent


def _without_empty(state: Any) -> Any:
    """None for every array without elements, which orbax refuses to write; MJX's data has several."""
    return jax.tree.map(lambda x: x if x.size else None, state)


def _with_empty(state: Any, like: Any) -> Any:
    """`state` with such arrays of `like` in their places again."""
    leaves, structure = jax.tree.flatten(like)
    kept = iter(jax.tree.leaves(state))
    empty = lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.sharding)
    return structure.unflatten([next(kept) if x.size else empty(x) for x in leaves])


def abstract(state: Any, sharding: Any) -> Any:
    """Shapes, dtypes and a sharding for every leaf, for `restore`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state)


def to_json(value: Any) -> Any:
    """NumPy numbers and arrays as plain JSON values; non-finite floats as None."""
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
