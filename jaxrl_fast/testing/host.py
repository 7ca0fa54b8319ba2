"""`check_env` for host environments: played once, and again with the same seed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.host.vector import HostStep, Vector
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete, Space, zeros

Played = list[tuple[Any, np.ndarray, HostStep]]  # (observation, actions, outcome)


def play(env: HostEnv, num_envs: int, num_steps: int, seed: int, training: bool = True) -> Played:
    """Play random actions, the same for the same seed."""
    rng, vector = np.random.default_rng(seed), env.open(num_envs, seed, training)
    actions = [sample(rng, env.spec.action, num_envs) for _ in range(num_steps)]
    rows: Played = []
    try:
        obs = vector.reset()
        if vector.at_once is not None:
            return as_they_come(vector, obs, actions)
        for action in actions:
            vector.send(action)
            step = vector.receive()
            rows.append((obs, action, step))
            obs = step.obs
    finally:
        vector.close()
    return rows


def as_they_come(vector: Vector, obs: Any, actions: list[np.ndarray]) -> Played:
    """Play environments that come in any order: row i has the i-th step of each."""
    plan = np.stack([*actions, actions[-1]])  # one more, for environments that are ahead
    games: list[list[Any]] = [[] for _ in range(vector.num_envs)]
    for ids in np.split(np.arange(vector.num_envs), vector.num_envs // vector.at_once):
        vector.send(actions[0][ids], ids)
    while min(map(len, games)) < len(actions):
        step = vector.receive()
        assert 0 < len(set(step.ids)) == len(step.ids) <= vector.at_once, (
            f"ids: {step.ids} came, of {vector.at_once} at once"
        )
        for i, which in enumerate(step.ids):
            games[which].append(tree.take(step._replace(ids=None), i))
        rows = [min(len(games[which]), len(actions)) for which in step.ids]
        vector.send(plan[rows, step.ids], step.ids)
    steps = [jax.tree.map(lambda *x: np.stack(x), *row)
             for row in list(zip(*games, strict=False))[: len(actions)]]
    return list(zip([obs, *(step.obs for step in steps[:-1])], actions, steps, strict=True))


def sample(rng: np.random.Generator, space: Space, num_envs: int) -> np.ndarray:
    """Return uniform actions [B, ...], standard normal without bounds."""
    if isinstance(space, Discrete):
        return rng.integers(0, space.n, num_envs).astype(np.int32)
    if isinstance(space, MultiDiscrete):
        return rng.integers(0, space.nvec, (num_envs, len(space.nvec))).astype(np.int32)
    shape = (num_envs, *space.shape)
    return (rng.uniform(*space.bounds(), shape) if space.bounded
            else rng.normal(size=shape)).astype(space.dtype)


def check(env: HostEnv, num_envs: int, num_steps: int) -> tuple[int, int, int, int, bool]:
    """Check all properties -> (steps, terminated, truncated, longest episode, random resets)."""
    spec = env.spec
    hash((env, spec))
    rows = play(env, num_envs, num_steps, 0)
    length, longest, ends, cuts, early, differs = np.zeros(num_envs, int), 0, 0, 0, 0, False
    for i, (obs, _, step) in enumerate(rows):
        _check_obs(spec.observation, obs, num_envs, f"observation of step {i}")
        _check_obs(spec.observation, step.next_obs, num_envs, f"next_obs of step {i}")
        for name in ("reward", "score", "terminated", "truncated", "over"):
            x, dtype = getattr(step, name), "float32" if name in ("reward", "score") else "bool"
            assert x.shape == (num_envs,) and x.dtype == dtype, (
                f"{name}: it is {x.dtype}{list(x.shape)}, not {dtype}[{num_envs}]"
            )
        assert np.isfinite(step.reward).all() and np.isfinite(step.score).all(), (
            f"finite: a reward of step {i} is not"
        )
        done = step.terminated | step.truncated
        real = np.ones(num_envs, bool) if step.real is None else step.real
        assert not (step.terminated & step.truncated).any(), (
            "ends: `terminated` and `truncated` are both set"
        )
        assert not (step.over & ~done).any(), "ends: a game is over in a step that ends no episode"
        for x, y in zip(jax.tree.leaves(step.obs), jax.tree.leaves(step.next_obs), strict=True):
            assert (x[~done] == y[~done]).all(), (
                f"continuity: within an episode `next_obs` of step {i} is not what is seen next"
            )
        length += real
        longest = max(longest, int(length[step.over].max(initial=0)))
        assert spec.max_episode_steps is None or (length <= spec.max_episode_steps).all(), (
            "time limit: a game continues past it"
        )
        early += int((step.truncated & step.over & (length < (spec.max_episode_steps or 0))).sum())
        length[step.over] = 0
        ends, cuts = ends + int(step.terminated.sum()), cuts + int((step.truncated & real).sum())
        differs |= any((x[done] != y[done]).any()
                       for x, y in zip(*map(jax.tree.leaves, (step.obs, step.next_obs)),
                                       strict=True))
    assert ends or not early, (
        f"time limit: {early} episodes are truncated before max_episode_steps = "
        f"{spec.max_episode_steps}, and none is terminated"
    )
    again, other = play(env, num_envs, num_steps, 0), play(env, num_envs, 1, 1)
    for i, (a, b) in enumerate(zip(rows, again, strict=True)):
        same = all(((x == y) | (x != x) & (y != y)).all()
                   for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
        assert same, f"seed: with the same seed and actions step {i} is another one"
    firsts = [jax.tree.leaves(r[0][0]) for r in (rows, other)]
    random_resets = any((x != y).any() for x, y in zip(*firsts, strict=True))
    assert differs or not random_resets or not ends + cuts, (
        "successor: where an episode ends `next_obs` is the next one's first"
    )
    return num_envs * num_steps, ends, cuts, longest, random_resets


def _check_obs(space: Space, obs: Any, num_envs: int, what: str) -> None:
    if isinstance(space, Dict):
        assert isinstance(obs, dict) and set(obs) == {name for name, _ in space.items}, (
            f"{what}: its entries are not the spec's"
        )
        for name, inner in space.items:
            _check_obs(inner, obs[name], num_envs, f"{what}, {name}")
        return
    like = jax.eval_shape(lambda: zeros(space, (num_envs,)))
    found = f"{obs.dtype}{list(obs.shape)}"
    assert (obs.shape, obs.dtype) == (like.shape, like.dtype), (
        f"{what}: it is {found}, not {like.dtype}{list(like.shape)}"
    )
    low, high = (space.bounds() if isinstance(space, Box)
                 else (0, np.array(getattr(space, "nvec", getattr(space, "n", 1))) - 1))
    assert np.isfinite(obs).all() and (obs >= low).all() and (obs <= high).all(), (
        f"bounds: {what} lies outside the spec's"
    )
