"""Checkpoints on disk, by orbax, never pickle: RunStates in `last`, agents in `best`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jaxrl_fast import distributed
from jaxrl_fast.errors import ConfigError, SubstituteWarning, WriteError
from jaxrl_fast.files import folders, forms
from jaxrl_fast.files.checksums import EarlyChecksums, verify_checksums, write_checksums
from jaxrl_fast.runs.checkpoints import errors, older_states
from jaxrl_fast.runs.checkpoints.arrays import check_arrays, with_empty, without_empty
from jaxrl_fast.runs.checkpoints.errors import DamagedError
from jaxrl_fast.runs.checkpoints.metadata import FORMS, misfit_of_lanes

T = TypeVar("T")
FORMAT = 2
KINDS = ("last", "best")
# what a whole checkpoint is good for where the other kind is damaged
REMEDY_OF = {"last": "", "best": ": start_from (--start-from RUN) begins a new run with its agent"}
UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of an unfinished one
ARRAYS = f"*{UNFINISHED}*/state*/ocdbt.process_*/d/*"  # files with its arrays
MOST_REPLACED = 20  # checkpoints that a run may replace during one read


class Checkpoints:
    """The checkpoints under `folder`, written asynchronously, atomically and with checksums.

    Save a snapshot that is never donated: orbax reads it in a thread. keep: number of a kind.
    """

    def __init__(self, folder: Path, read_only: bool = False, keep: int = 2):
        self.folder, self.read_only, self.keep = Path(folder), read_only, keep
        self._managers: dict[str, Any] = {}
        self._early: dict[str, EarlyChecksums] = {}  # of the checkpoint being written
        self._made: dict[str, folders.Identity | None] = {}  # folder that each manager opened
        self._damaged: set[tuple[str, int]] = set()
        self._unsynced: set[str] = set()  # kinds whose newest name may be in memory alone
        self._quiet: errors.Quiet | None = None  # while orbax is at work

    def _manager(self, which: str):
        if which not in self._managers:
            self._quiet = self._quiet or errors.Quiet()
            import orbax.checkpoint as ocp

            # Folders are made here: orbax's threads would wait forever for a failed one.
            threads = None if self.read_only else ocp.AsyncOptions(
                create_directories_asynchronously=False,
                post_finalization_callback=lambda: self._seal(which)
            )  # fmt: skip
            options = ocp.CheckpointManagerOptions(
                max_to_keep=self.keep, create=not self.read_only,
                cleanup_tmp_directories=not self.read_only,
                read_only=self.read_only, enable_async_checkpointing=not self.read_only,
                async_options=threads,
            )  # fmt: skip
            handlers = {"state": ocp.StandardCheckpointHandler(),
                        "meta": ocp.JsonCheckpointHandler()}
            folder = (self.folder / which).absolute()
            self._managers[which] = ocp.CheckpointManager(
                folder, options=options, item_handlers=handlers
            )
            self._made[which] = folders.identity(self.folder / which)
            # orbax would ask JAX about stopping by row numbers; the loop asks with its own count
            self._managers[which].reached_preemption = lambda step: False
        return self._managers[which]

    def _writing(self, which: str) -> contextlib.AbstractContextManager:
        return errors.writing(self.folder / which, self._made.get(which),
                              lambda: self._fail(which))

    def _fail(self, which: str) -> None:
        self._early_checksums(which)
        self._note_failure()

    def _note_failure(self) -> None:
        if self._quiet:
            self._quiet.note_failure()

    def _seal(self, which: str) -> None:
        """Write a checkpoint's checksums before it gets its name; orbax's thread calls this."""
        if distributed.is_first():
            for unnamed in (self.folder / which).glob(f"*{UNFINISHED}*"):
                write_checksums(unnamed, self._early_checksums(which))
                for path in (*unnamed.rglob("*"), unnamed):
                    folders.sync(path)

    def _early_checksums(self, which: str) -> dict[tuple, list[Any]]:
        early = self._early.pop(which, None)
        return early.finish() if early else {}

    def sync_names(self) -> None:
        """Put the names of finished checkpoints on the disk; those being written come later.

        Raises WriteError.
        """
        for which in tuple(self._unsynced):
            manager = self._managers.get(which)
            if manager is None or not manager.is_saving_in_progress():
                self._unsynced.discard(which)
                with self._writing(which):
                    folders.sync(self.folder / which)

    def save(self, which: str, iteration: int, state: Any, meta: dict[str, Any]) -> None:
        """Start writing, after any unfinished write of this kind. Raises WriteError.

        With several processes, after any kind's: orbax numbers its barriers.
        """
        import orbax.checkpoint as ocp

        with self._writing(which):
            manager = self._manager(which)
            self.wait() if distributed.several() else manager.wait_until_finished()
            self.sync_names()
            self._drop_damaged(which)
            state = ocp.args.StandardSave(without_empty(state))
            meta = ocp.args.JsonSave({"format": FORMAT, **meta})
            self._early_checksums(which)  # of a write that failed
            if distributed.is_first():  # `_seal` ends it
                self._early[which] = EarlyChecksums(self.folder / which, ARRAYS)
            manager.save(iteration, args=ocp.args.Composite(state=state, meta=meta), force=True)
            self._unsynced.add(which)

    def pass_over(self, which: str, number: int) -> None:
        """Note lasting damage of checkpoints newer than this one; they are not kept."""
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
        """Delete a kind's damaged checkpoints, so that whole ones stay."""
        for number in sorted(number for kind, number in self._damaged if kind == which):
            if number in self._manager(which).all_steps():
                self._manager(which).delete(number)
            self._damaged.discard((which, number))

    def latest(self, which: str) -> int | None:
        """Return the number of a kind's newest checkpoint, damaged and unfinished included."""
        return self._manager(which).latest_step() if (self.folder / which).is_dir() else None

    def numbers(self, which: str) -> list[int]:
        """Return the numbers of a kind's checkpoints, newest first."""
        return numbers_in(self.folder / which)

    def check_own(self) -> None:
        """Raise ConfigError for checkpoints outside of the run: new ones replace old ones."""
        kinds = [self.folder / which for which in KINDS]
        for path in (self.folder, *kinds,
                     *(kind / str(n) for kind in kinds for n in self.numbers(kind.name))):
            if path.is_symlink():
                raise ConfigError("checkpoint", str(path),
                                  "a folder in the run, not a link, to resume it: copy the link's "
                                  "target there")

    def read(self, order: Sequence[str], attempt: Callable[[str, int], T]) -> T | None:
        """Return attempt(kind, number) of the newest whole checkpoint, kinds in order, or None.

        Passes over damaged ones with a SubstituteWarning. Raises DamagedError if all are damaged.
        """
        failures: list[DamagedError] = []
        for which in order:
            tried = set[int]()
            while left := [n for n in self.numbers(which) if n not in tried]:
                number = left[0]
                tried.add(number)
                try:
                    self.verify(which, number)
                    found = attempt(which, number)
                except DamagedError as error:
                    if error.path.is_dir() or len(tried) > MOST_REPLACED:
                        failures.append(error)
                        self._note(which, number, error)
                    continue  # a folder that is gone: the run wrote newer ones meanwhile
                for bad in failures:
                    instead = self.folder / which / str(number)
                    text = (f"checkpoint {bad.path} is damaged ({bad.why}); read in its place: "
                            f"{instead}")
                    warnings.warn(text, SubstituteWarning, stacklevel=3)
                return found
        if not failures:
            return None
        others = [which for which in KINDS if which not in order and self.newest(which) is not None]
        hints = [f". The checkpoint {x!r} is whole{REMEDY_OF[x]}" for x in others]
        raise DamagedError(failures[0].path, failures[0].why + "".join(hints))

    def newest(self, which: str) -> int | None:
        """Return the number of a kind's newest whole checkpoint, by checksums and metadata."""
        for number in self.numbers(which):
            with contextlib.suppress(DamagedError):
                self.verify(which, number)
                self.meta(which, number)
                return number
        return None

    def verify(self, which: str, iteration: int) -> None:
        """Raise DamagedError for a changed file. Checkpoints of older versions lack checksums."""
        path = self.folder / which / str(iteration)
        with errors.reading(path, checked=True):
            verify_checksums(path)

    def meta(self, which: str, iteration: int, members: int | None = None) -> dict[str, Any]:
        """Return a checkpoint's metadata. members: of the run, if known."""
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
        return errors.reading(self.folder / which / str(iteration), failed=self._note_failure)

    def restore(self, which: str, iteration: int, like: Any) -> Any:
        """Return the state as `like` (shapes, dtypes, shardings); another structure is an error."""
        import orbax.checkpoint as ocp

        with self.reading(which, iteration):
            manager = self._manager(which)
            written = manager.item_metadata(iteration)["state"].tree
            form = older_states.drop_missing(like, written)
            check_arrays(without_empty(form), written)
            args = ocp.args.Composite(state=ocp.args.StandardRestore(without_empty(form)))
            return older_states.complete(
                with_empty(manager.restore(iteration, args=args)["state"], form), like
            )

    def wait(self) -> None:
        for which, manager in self._managers.items():
            with self._writing(which):
                manager.wait_until_finished()
        self.sync_names()

    def close(self) -> None:
        try:
            self._close_managers()
        except WriteError:  # comes first, but the other kind's newest name is synced too
            with contextlib.suppress(WriteError):
                self.sync_names()
            raise
        self.sync_names()

    def _close_managers(self) -> None:
        managers, self._managers = self._managers, {}
        with contextlib.ExitStack() as stack:
            if self._quiet:
                stack.callback(self._quiet.end)
            for which in KINDS:
                stack.callback(self._early_checksums, which)
            for which, manager in managers.items():
                stack.enter_context(self._writing(which))
                stack.callback(manager.close)
                stack.callback(manager.wait_until_finished)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        with contextlib.suppress(WriteError) if kind else contextlib.nullcontext():
            self.close()


def numbers_in(folder: Path) -> list[int]:
    """Return the numbers of checkpoints in a folder, highest first; orbax names whole ones."""
    names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(x) for x in names if x.isascii() and x.isdecimal() and len(x) < 20),
                  reverse=True)
