"""`check_env(env)`: check every property of an environment, from one trace and one play.

Each failure names the property, the observation, and the change to make. No particular environment
is known here.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.checks import describe
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.resets import Noise
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import zeros
from jaxrl_fast.testing import host, rollout
from jaxrl_fast.testing.purity import check_purity, compile_for_one_call, find_difference
from jaxrl_fast.types import EnvSpec, Outcome

_CHANCE = 1e-4  # an event less probable by chance counts as a mistake
_NEVER = {  # counts that must be zero at every step
    "out of bounds": "bounds: an observation lies outside `spec.observation`",
    "not finite": "finite: an observation, reward or state is NaN or infinite",
    "both ends": "ends: `terminated` and `truncated` are both set; an end by the task's rules is "
                 "not a truncation",
    "over within an episode": "ends: `Outcome.over` is set in a step that ends no episode",
    "past the limit": "time limit: an episode continues past `spec.max_episode_steps`",
    "continues elsewhere": "continuity: within an episode the observation of the next step is not "
                           "`Outcome.next_obs`",
    "no legal action": "mask: an observation's `action_mask` leaves no legal action",
}


class Report(NamedTuple):
    """Counts of a play of the environment."""

    steps: int
    terminated: int
    truncated: int
    longest: int  # steps of the longest episode that ended
    random_resets: bool


def check_env(
    env: Env,
    num_envs: int = 8,
    num_steps: int | None = None,
    key: jax.Array | None = None,
    ends_at_limit: bool = False,
) -> Report:
    """Raise AssertionError with the property of the protocol that `env` breaks.

    Args:
        env: Any `jaxrl_fast.Env`, wrapped or not, or a `HostEnv`.
        num_envs: Environments of each of the two lanes.
        num_steps: Steps of random play; by default twice the time limit (1,000 without one).
        ends_at_limit: Set it for a task of fixed length, whose last step before the limit is a
            natural end. Otherwise a limit that always terminates and never truncates is refused.

    One program is compiled, for two lanes of `num_envs` environments. A host environment is only
    played.
    """
    return _check(env, num_envs, num_steps, key, ends_at_limit)


@functools.singledispatch
def _check(env: Any, num_envs: int, num_steps: int | None, key: jax.Array | None,
           ends_at_limit: bool) -> Report:
    raise AssertionError(f"protocol: {type(env).__name__} is not a jaxrl_fast Env or HostEnv")


@_check.register
def _(env: HostEnv, num_envs: int, num_steps: int | None, key: jax.Array | None,
      ends_at_limit: bool) -> Report:
    limit = env.spec.max_episode_steps or 500
    return Report(*host.check(env, num_envs, min(2 * limit + 2, 1000) if num_steps is None
                              else num_steps))


@_check.register
def _(env: Env, num_envs: int, num_steps: int | None, key: jax.Array | None,
      ends_at_limit: bool) -> Report:
    spec = _check_spec(env)
    if num_steps is None:
        num_steps = (
            1000 if spec.max_episode_steps is None else max(64, 2 * spec.max_episode_steps + 2)
        )
    key = jax.random.key(0) if key is None else key
    _check_types(env, spec, num_envs)
    run = _play(env, key, num_envs, num_steps)
    seen = jax.tree.map(lambda x: np.asarray(random.as_data(x)), run)
    return _judge(spec, seen, num_envs, num_steps, ends_at_limit)


def _check_spec(env: Env) -> EnvSpec:
    spec = env.spec
    assert isinstance(spec, EnvSpec), f"spec: `env.spec` is a {type(spec).__name__}, not an EnvSpec"
    hash(spec)
    leaves, structure = jax.tree.flatten(env)
    assert leaves != [env], (
        f"pytree: {type(env).__name__} is not registered as one; decorate it with `jf.settings`"
    )
    rebuilt = jax.tree.unflatten(structure, leaves)
    assert rebuilt.spec == spec, (
        "pytree: flattening and unflattening the environment changes its spec"
    )
    # fails if a space is built from a traced leaf
    traced = jax.make_jaxpr(lambda e: [jnp.zeros(()) for _ in [e.spec]])
    try:
        traced(env)
    except jax.errors.JAXTypeError as error:
        raise AssertionError(
            f"spec: it depends on a traced leaf; make that field static ({error})"
        ) from None
    limit = spec.max_episode_steps
    assert limit is None or limit >= 1, f"spec: max_episode_steps = {limit}"
    return spec


def require_equal(property_: str, got: Any, want: Any) -> None:
    """Assert the same tree structure, shapes and dtypes."""
    a, b = jax.tree.structure(got), jax.tree.structure(want)
    assert a == b, f"{property_}: the tree is {a}, expected {b}"
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(got),
                            jax.tree.leaves(want), strict=True):
        where = jax.tree_util.keystr(path) or "it"
        assert (x.shape, x.dtype) == (y.shape, y.dtype), (
            f"{property_}: {where} is {describe(x)}, not {describe(y)}"
        )


def require_strong(what: str, value: Any) -> None:
    for path, x in jax.tree_util.tree_leaves_with_path(value):
        where = f"{what}{jax.tree_util.keystr(path)}"
        assert not x.weak_type, (
            f"weak type: {where} is weakly typed (every call would trace twice); use `tree.strong`"
        )
        wide = str(x.dtype) in ("float64", "int64", "uint64", "complex128")
        assert not wide, f"dtype: {where} is {x.dtype}; states are 32 bits or fewer"


def _shapes(f: Any, *args: Any) -> Any:
    """Return the shapes of f(*args)."""
    try:
        return jax.eval_shape(f, *args)
    except ConfigError as error:  # from the checks of `Env.init` and `Env.step`
        raise AssertionError(f"shapes: {error}") from None


def _check_types(env: Env, spec: EnvSpec, num_envs: int) -> None:
    key = jax.random.key(0)
    state, obs = _shapes(lambda k: env.init(k, num_envs), key)
    want = jax.eval_shape(lambda: zeros(spec.observation, (num_envs,)))
    require_equal("observation of init", obs, want)
    try:
        begun = jax.eval_shape(lambda k: env.init(k, num_envs, jnp.int32(0)), key)
    except TypeError as error:
        raise AssertionError("init: a run calls it with the iteration as well, init(key, "
                             f"num_envs, t) ({error})") from None
    require_equal("init must give the same where it is told the iteration", begun, (state, obs))
    noise = jax.eval_shape(lambda k: env.draw(k, 3, num_envs, jnp.int32(0)), key)
    assert isinstance(noise, Noise), (
        f"draw: returns {jax.tree.structure(noise)}, expected the Noise of `Env.draw`"
    )
    for x in jax.tree.leaves(noise.rows):
        assert x.shape[:1] == (3,), (
            f"draw: noise for 3 steps has a leaf {describe(x)}; its first axis is time"
        )

    def step(key, state, obs):
        action = rollout.random_action(spec.action, obs, key, num_envs)
        return env.step(env.draw(key, 1, num_envs, jnp.int32(0)).at(0), state, action)

    result = _shapes(step, key, state, obs)
    assert isinstance(result, tuple) and len(result) == 3 and isinstance(result[2], Outcome), (
        f"step: returns {jax.tree.structure(result)}, expected (state, obs, Outcome)"
    )
    new_state, new_obs, outcome = result
    require_equal("state after a step", new_state, state)
    require_equal("observation after a step", new_obs, want)
    require_equal("Outcome.next_obs", outcome.next_obs, want)
    for name, dtype in (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool")):
        x = getattr(outcome, name)
        right = (x.shape, str(x.dtype)) == ((num_envs,), dtype)
        assert right, f"Outcome.{name}: {describe(x)}, not {dtype}[{num_envs}]"
    for what, value in (("state", state), ("obs", obs), ("state after a step", new_state),
                        ("obs", new_obs)):
        require_strong(what, value)


def _program(num_envs: int, num_steps: int) -> Any:
    """Return two lanes of `play` as a new function, so that JAX traces it afresh."""
    return jax.jit(jax.vmap(lambda env, key: rollout.play(env, key, num_envs, num_steps),
                            in_axes=(None, 0)))


def _play(env: Env, key: jax.Array, num_envs: int, num_steps: int) -> Any:
    """Return the results of two lanes, the same as when they are swapped."""
    keys = jax.random.split(key, 2)
    traced = _program(num_envs, num_steps).trace(env, keys)
    check_purity(traced.jaxpr, _program(num_envs, num_steps).trace(env, keys).jaxpr)
    compiled = compile_for_one_call(traced)
    # in NumPy: on the device each leaf's turn would be a program
    run, swapped = (random.on_host(compiled(env, x)) for x in (keys, keys[::-1]))
    where = find_difference(run, jax.tree.map(lambda x: x[::-1], swapped))
    assert where is None, (
        f"purity: under `vmap` over a population the result {where} of a member depends on its "
        "neighbours or on the call"
    )
    return run


def _collisions(tree: Any, rows: int) -> float:
    """Return the probability that two random rows (with replacement) are equal in every leaf."""
    whole = [b"".join(np.ascontiguousarray(x[i]).tobytes() for x in jax.tree.leaves(tree))
             for i in range(rows)]
    return sum((n / rows) ** 2 for n in Counter(whole).values())


def _judge(spec: EnvSpec, seen: Any, num_envs: int, num_steps: int, ends_at_limit: bool) -> Report:
    counts = {name: x.sum(axis=0) for name, x in seen["steps"].items()}  # [T], over both lanes
    for name, message in _NEVER.items():
        if counts[name].any():
            first = int(np.argmax(counts[name] > 0))
            raise AssertionError(f"{message} (first at step {first}, {int(counts[name].sum())} "
                                 "times)")
    total = {name: int(x.sum()) for name, x in counts.items()}
    longest = int(seen["steps"]["longest"].max())
    done = total["terminated"] + total["truncated"]
    limit = spec.max_episode_steps
    if limit is not None and num_steps >= limit:
        assert done > 0, (
            f"time limit: no episode ended within {num_steps} steps, the limit is {limit}"
        )
    if limit is not None and limit > 1 and not ends_at_limit:
        always = total["truncated"] == 0 and total["terminated at the limit"] > 0
        assert not always, (
            f"time limit: {total['terminated at the limit']} episodes ended as `terminated` on "
            f"step {limit}, the limit, and none as `truncated`. Time limits truncate (pass "
            "ends_at_limit=True if this end is natural)"
        )

    had, forgot = total["had what lasts"], total["forgot what lasts"]
    assert had == 0 or forgot < had, (
        f"lasting: after all {had} ends the `Lasting` parts of the state equal a first reset's; "
        "`step` must keep them, as `Env.step` does"
    )

    # Equal first states have chance p: too many in a row mean that the reset is not fresh.
    lane = jax.tree.map(lambda x: x[0], seen)
    p = _collisions(lane["resets"], rollout.NUM_RESETS)
    is_random = p < 1.0
    if is_random:
        p_first = _collisions(lane["first"], num_envs)
        assert not (p_first == 1.0 and p ** (num_envs - 1) < _CHANCE), (
            "reset distribution: resets differ from each other, and yet all environments of `init` "
            "start alike"
        )
        assert not (total["starts as before"] == done > 0 and p**done < _CHANCE), (
            f"cached reset: each of {done} episodes began exactly as the one before it in its "
            "environment, while resets are random. Draw a fresh first state at every end"
        )
    if done:
        # lasting state may decide where episodes start
        assert had > 0 or total["starts off the starts"] * 2 <= done, (
            f"reset: after {total['starts off the starts']} of {done} ends the next observation is "
            "not like those of `reset`"
        )
        constant = total["moved"] == 0  # an observation that never changes
        equal = total["successor is the next start"]
        assert constant or done < 4 or equal < done, (
            f"terminal observation: in all {done} ends `Outcome.next_obs` is the first observation "
            "of the next episode. It must be the successor before the reset: the value of a "
            "truncated episode is computed from it"
        )
        going = max(1, 2 * num_envs * num_steps - done)
        wanders = total["left the starts"] / going
        # 0.2: a goal may lie where episodes start
        unlikely = wanders > 0.2 and (1.0 - wanders) ** done < _CHANCE
        assert not (unlikely and total["ended off the starts"] == 0), (
            f"terminal observation: {wanders:.0%} of the successors lie where no episode starts, "
            f"and yet all {done} last ones look like first ones. `transition` must not reset by "
            "itself"
        )
    return Report(2 * num_envs * num_steps, total["terminated"],
                  total["truncated"], longest, is_random)
