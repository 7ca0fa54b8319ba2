"""Keywords of `jf.train` and `jf.sweep` for type checkers, by scripts/settings_page.py."""

from typing import Any, TypedDict


class SweepSettings(TypedDict, total=False):
    """Settings of every run of a sweep."""

    seed: int
    """Seed of the first member; the others count up from it. Default: 0."""
    seeds: int
    """Members trained in one program; with environments on the host, one after another. Default:
    1."""
    horizon: int | None
    """Environment steps over which schedules run. Default: the total steps at the start."""
    start_from: Any
    """Run directory with the agent that every member starts from. Default: none."""
    on_nan: str
    """On NaN or inf in a member: stop the run, or mark the member and go on. Default: 'stop'."""
    log_every: int | None
    """Environment steps between log rows. Default: a hundredth of the run."""
    checkpoint_minutes: float
    """Minutes between checkpoints. Default: 5.0."""
    keep_checkpoints: int
    """Newest checkpoints of each kind to keep. Default: 2."""
    chunk_seconds: float
    """Seconds of device work between two syncs with the host. Default: 1.0."""
    pictures: bool
    """Draw curve and agent at the end, in a notebook the newest rollout. Default: True."""
    video_every: int | None
    """Environment steps between videos of an episode; 0: at evaluations alone. Default: no
    videos."""
    video_share: float
    """Part of the run's time that its videos may take; 1: no limit. Default: 0.01."""
    video_format: str
    """Files of the videos; mp4 needs the extra [video]. Default: 'gif'."""
    eval_every: int | None
    """Environment steps between evaluations; 0: only at the end. Default: a tenth of the run."""
    eval_episodes: int | None
    """Episodes of an evaluation. Default: 128; on the host what fits in an eighth of the steps."""
    eval_mode: str
    """Choice of actions in evaluations. Default: 'greedy'."""
    target_return: float | None
    """Evaluation return of every member at which the run stops. Default: never."""
    batching: str
    """How members share a device. Default: 'auto'."""
    devices: int | None
    """Devices to use, or all. Default: all, at most one a member."""
    mesh: Any
    """Devices for members and for environments, as in population=4,env=2. Default: all along the
    population."""
    groups: int | None
    """Groups of environments, each sampled by itself. Default: devices along env."""
    deterministic: bool
    """Same bits in every process on a GPU: no autotuning, scatters in order; slower. Default:
    False."""
    memory_fraction: float | None
    """Part of a GPU's memory to take at the start; 0: as it is needed. Default: JAX's, 0.75."""
    unroll: int | None
    """Rollout steps compiled in a row. Default: 1, on a GPU up to 8."""
    parallel_loops: bool
    """Divide loops among a CPU's threads; `tune-speed` tries without. Default: True."""
    donate: bool
    """Write a chunk's state over the last one's; false takes twice its memory. Default: True."""
    tuned: bool
    """Take the settings that `jaxrl-fast tune-speed` found for this program here. Default: True."""
    actors: int
    """Vectors of environments on the host; they take turns. Default: 1."""
    actors_on: str
    """Threads of this process, or one Ray process for each actor. Default: 'threads'."""
    ahead: int | None
    """Rollouts by which actors may lead the learner. Default: 1 for off-policy algorithms, else
    0."""
    host_timeout: float
    """Seconds to wait for an answer of an environment on the host. Default: 120.0."""
    restarts: int
    """Restarts of failed environments on the host. Default: 0."""
    experience: Any
    """Folder of old experience (`jaxrl-fast experience` writes one). Default: none."""
    experience_fraction: float
    """Old share of a batch; 0: at the start alone; 1: offline, total_steps counts updates. Default:
    0.5."""
    experience_id: str | None
    """Identity of the experience at the start; `train` fills it in. Default: found in the
    folder."""


class RunSettings(SweepSettings, total=False):
    """Settings of a run."""

    population: Any
    """Values that differ, `{"algo.learning_rate": [1e-4, 1e-3]}`, with `seeds` members each.
    Default: all alike."""
    selection: Any
    """`jf.PBT` or `jf.Halving`: chooses the members that go on. Default: all of them."""
