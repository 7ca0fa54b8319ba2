"""Checkpoints on the disk, by orbax: `last` holds whole RunStates, `best` the agents that evaluated best. Never pickle."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.errors import ConfigError, WriteError
from jaxrl_fast.files import folders, forms
from jaxrl_fast.files.checksums import verify_checksums, write_checksums
from jaxrl_fast.runs.checkpoints import errors, older_states
from jaxrl_fast.runs.checkpoints.errors import DamagedError
from jaxrl_fast.runs.checkpoints.metadata import FORMS, misfit_of_lanes

T = TypeVar("T")
FORMAT = 2
KINDS = ("last", "best")
UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of one that is being written


class Checkpoints:
    """The checkpoints under `folder`, written asynchronously. Each write is atomic and carries checksums of its files.

    What is saved must be a snapshot that no later program is given as a donated argument: orbax reads it from
    another thread.  keep: how many of each kind there are.
    """

    def __init__(self, folder: Path, read_only: bool = False, keep: int = 2):
        self.folder, self.read_only, self.keep = Path(folder), read_only, keep
        self._managers: dict[str, Any] = {}
        self._made: dict[str, folders.Identity | None] = {}  # which folder each manager opened
        self._damaged: set[tuple[str, int]] = set()
        self._quiet: errors.Quiet | None = None  # while orbax is at work

    def _manager(self, which: str):
        if which not in self._managers:
            logging.getLogger("absl").setLevel(logging.CRITICAL)  # what fails is raised, too
            self._quiet = self._quiet or errors.Quiet()
            import orbax.checkpoint as ocp

            # Folders are made here: orbax's threads wait for ever for those that another thread of it could not make.
            threads = None if self.read_only else ocp.AsyncOptions(
                create_directories_asynchronously=False, post_finalization_callback=lambda: self._seal(which)
            )  # fmt: skip
            options = ocp.CheckpointManagerOptions(
                max_to_keep=self.keep, create=not self.read_only, cleanup_tmp_directories=not self.read_only,
                read_only=self.read_only, enable_async_checkpointing=not self.read_only, async_options=threads,
            )  # fmt: skip
            handlers = {"state": ocp.StandardCheckpointHandler(), "meta": ocp.JsonCheckpointHandler()}
            self._managers[which] = ocp.CheckpointManager(
                (self.folder / which).absolute(), options=options, item_handlers=handlers
            )
            self._made[which] = folders.identity(self.folder / which)
            # orbax would ask JAX whether to stop with row numbers, where the loop asks with a count of its own
            self._managers[which].reached_preemption = lambda step: False
        return self._managers[which]

    def _writing(self, which: str) -> contextlib.AbstractContextManager:
        """WriteError for whatever fails while a checkpoint of this kind is written."""
        return errors.writing(self.folder / which, self._made.get(which), self._note_failure)

    def _note_failure(self) -> None:
        if self._quiet:
            self._quiet.note_failure()

    def _seal(self, which: str) -> None:
        """Write the checksums of what is about to get its name; orbax calls this from its thread."""
        if distributed.is_first():
            for unnamed in (self.folder / which).glob(f"*{UNFINISHED}*"):
                write_checksums(unnamed)

    def save(self, which: str, iteration: int, state: Any, meta: dict[str, Any]) -> None:
        """Start writing; a write of the same kind that is still under way is finished first. WriteError where one fails.

        With several processes any: orbax numbers its barriers, and two writes at a time would meet at each other's.
        """
        import orbax.checkpoint as ocp

        with self._writing(which):
            manager = self._manager(which)
            self.wait() if distributed.several() else manager.wait_until_finished()
            self._drop_damaged(which)
            args = ocp.args.Composite(
                state=ocp.args.StandardSave(_without_empty(state)), meta=ocp.args.JsonSave({"format": FORMAT, **meta})
            )
            manager.save(iteration, args=args, force=True)

    def pass_over(self, which: str, number: int) -> None:
        """Find which checkpoints newer than this one, read in their place, are damaged for good: they are not kept."""
        for newer in self.numbers(which):
            if newer > number:
                try:
                    self.verify(which, newer)
                except DamagedError as error:
                    self._note(which, newer, error)

    def _note(self, which: str, number: int, error: DamagedError) -> None:
        if error.lasting:
            self._damaged.add((which, number))

    def _drop_damaged(self, which: str) -> None:
        """Delete the checkpoints of a kind that were found damaged, so that the whole ones are those that stay."""
        for number in sorted(number for kind, number in self._damaged if kind == which):
            if number in self._manager(which).all_steps():
                self._manager(which).delete(number)
            self._damaged.discard((which, number))

    def latest(self, which: str) -> int | None:
        """The number of the newest checkpoint of a kind, whole or not, one that is being written included."""
        return self._manager(which).latest_step() if (self.folder / which).is_dir() else None

    def numbers(self, which: str) -> list[int]:
        """Those of the checkpoints that are there, the newest first: orbax names them when they are written."""
        folder = self.folder / which
        found = [int(p.name) for p in folder.iterdir() if is_number(p.name)] if folder.is_dir() else []
        return sorted(found, reverse=True)

    def check_own(self) -> None:
        """Raises ConfigError where checkpoints lie outside of the run: old ones are deleted when new ones are written."""
        kinds = [self.folder / which for which in KINDS]
        for path in (self.folder, *kinds, *(kind / str(n) for kind in kinds for n in self.numbers(kind.name))):
            if path.is_symlink():
                valid = "a folder in the run, not a link, to go on with it; copy there what it leads to"
                raise ConfigError("checkpoint", str(path), valid)

    def read(self, order: Sequence[str], attempt: Callable[[str, int], T]) -> T | None:
        """attempt(kind, number) of the newest whole checkpoint, kinds in this order; None where there is none at all.

        What is damaged is passed over with a warning. Raises DamagedError where nothing is whole.
        """
        failures: list[DamagedError] = []
        for which in order:
            for number in self.numbers(which):
                try:
                    self.verify(which, number)
                    found = attempt(which, number)
                except DamagedError as error:
                    failures.append(error)
                    self._note(which, number, error)
                    continue
                for bad in failures:
                    instead = self.folder / which / str(number)
                    warnings.warn(f"checkpoint {bad.path} is damaged ({bad.why}); read in its place: {instead}", stacklevel=3)
                return found
        if not failures:
            return None
        others = [which for which in KINDS if which not in order and self.newest(which) is not None]
        raise DamagedError(failures[0].path, failures[0].why + "".join(f". The checkpoint {x!r} is whole" for x in others))

    def newest(self, which: str) -> int | None:
        """The number of the newest checkpoint of a kind that is whole, as far as its checksums and its meta tell."""
        for number in self.numbers(which):
            with contextlib.suppress(DamagedError):
                self.verify(which, number)
                self.meta(which, number)
                return number
        return None

    def verify(self, which: str, iteration: int) -> None:
        """Raises DamagedError where a file is not as it was written. Checkpoints of older versions have no checksums."""
        path = self.folder / which / str(iteration)
        with errors.reading(path, checked=True):
            verify_checksums(path)

    def meta(self, which: str, iteration: int, members: int | None = None) -> dict[str, Any]:
        """What a checkpoint says of itself. members: of the run, where they are known."""
        with self.reading(which, iteration):
            file = self.folder / which / str(iteration) / "meta" / "metadata"
            meta = forms.read_json(file, "meta", "the numbers beside a checkpoint", FORMS[which])
            if meta.get("format") != FORMAT:
                raise ValueError(f"format {meta.get('format')!r}, this version reads {FORMAT}")
            wrong = misfit_of_lanes(meta, members)
            if wrong:
                raise ValueError(f"{file.name}: {wrong}")
            return meta

    def reading(self, which: str, iteration: int) -> contextlib.AbstractContextManager:
        """DamagedError for whatever is raised of a checkpoint that is not as this run writes it."""
        return errors.reading(self.folder / which / str(iteration), failed=self._note_failure)

    def restore(self, which: str, iteration: int, like: Any) -> Any:
        """The state as `like`: shapes, dtypes and shardings. Another structure or shape is an error."""
        import orbax.checkpoint as ocp

        with self.reading(which, iteration):
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
        """Until everything is written. WriteError where that fails."""
        for which, manager in self._managers.items():
            with self._writing(which):
                manager.wait_until_finished()

    def close(self) -> None:
        """Finish what is being written, and let go of orbax's threads."""
        managers, self._managers = self._managers, {}
        with contextlib.ExitStack() as stack:
            if self._quiet:
                stack.callback(self._quiet.end)
            for which, manager in managers.items():
                stack.enter_context(self._writing(which))
                stack.callback(manager.close)
                stack.callback(manager.wait_until_finished)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        """`close`; what fails in it does not hide what ended the block."""
        with contextlib.suppress(WriteError) if kind else contextlib.nullcontext():
            self.close()


def is_number(name: str) -> bool:
    """Whether a folder is named as checkpoints are."""
    return name.isascii() and name.isdecimal() and len(name) < 20


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

