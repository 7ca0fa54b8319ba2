"""One rollout of groups of environments on the host, in whatever thread or process they are."""

from __future__ import annotations

import jax

from jaxrl_fast.actors import play as host_play
from jaxrl_fast.actors.groups import Group, SyncGroup, go_on
from jaxrl_fast.actors.groups_async import AsyncGroup
from jaxrl_fast.actors.handover import Rollout
from jaxrl_fast.actors.watch import Watch
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.logs.reports import merged
from jaxrl_fast.logs.walltime import WallTime


def open_group(env: HostEnv, run: Run, watch: Watch, num_envs: int, seed: int, index: int, first: int) -> Group:
    """The `num_envs` environments from the `first` on, the group with this `index`."""
    return (SyncGroup if env.at_once(num_envs) is None else AsyncGroup)(env, run, watch, num_envs, seed, index, first)


def play(
    run: Run, root: jax.Array, groups: list[Group], agent: object, t: int, warmup: int, watch: Watch, clock: WallTime
) -> Rollout:
    """The rollout of iteration t: while one group's environments step, the device acts for another.

    clock: of this thread; its activities are "environments", "transfer" and "inference", or "waiting" while it is paused.
    """
    mode = "random" if t < warmup else "sample"
    returns: list[float] = []
    lengths: list[int] = []
    clock.switch("inference")
    agent = host_play.acting(run.algo, agent)
    if isinstance(groups[0], AsyncGroup):
        return groups[0].play(root, agent, t, mode, clock)

    def receive(group: Group) -> None:
        group.send()
        clock.switch("environments")
        with watch.asked():
            group.receive(returns, lengths)
        clock.switch("transfer")
        group.transfer()
        clock.switch("inference")

    for group in groups:
        group.begin(root, t)
    for i in range(run.algo.num_steps):
        for group in groups:
            if i:
                receive(group)
            go_on(watch, clock)
            group.act(agent, i, mode)
    for group in groups:
        receive(group)
    reports = merged(group.tally.take() for group in groups)
    return Rollout(tuple(group.end() for group in groups), returns, lengths, reports=reports)
