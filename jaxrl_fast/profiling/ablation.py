"""Time pieces of an iteration alone, to check a trace or to replace it.

Each piece is compiled by itself, takes what the program would hand to it, and runs many times in a
loop. Pieces are coarser than a trace's parts: `GROUPS` says which parts are in which piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.learning import Iteration, prepare, update_all
from jaxrl_fast.engine import iteration, rollout
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.iteration import Run, clock_at
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import scopes, stacking
from jaxrl_fast.profiling import hlo
from jaxrl_fast.profiling.parts import LEARN, Profile
from jaxrl_fast.profiling.timing import TimedRun
from jaxrl_fast.types import RunState

ENVIRONMENT, POLICY, STORING, SAMPLING, LEARNING, RANDOM = (
    "environment", "policy", "storing", "sampling", "learning", "random",
)  # fmt: skip
GROUPS = {  # {piece: parts of a trace}
    ENVIRONMENT: (scopes.ENVIRONMENT, scopes.RESET),
    POLICY: (scopes.POLICY,),
    STORING: (scopes.STORE, scopes.TARGETS),
    SAMPLING: (scopes.SAMPLE,),
    LEARNING: (hlo.FORWARD, hlo.BACKWARD, scopes.OPTIMIZER),
    RANDOM: (scopes.RANDOM,),
}
PARTS = {  # {piece: its name among the parts}
    ENVIRONMENT: scopes.ENVIRONMENT, POLICY: scopes.POLICY, STORING: scopes.STORE,
    SAMPLING: scopes.SAMPLE, LEARNING: LEARN, RANDOM: scopes.RANDOM,
}  # fmt: skip
PLANS = 64  # iterations whose rows are sampled
REPEATS = 3  # measurements of a piece; the shortest counts


class Piece(NamedTuple):
    """A part alone, many times from `carry`, with inputs that change from turn to turn."""

    turn: Callable[[Any, Any, jax.Array], Any]  # (inputs, carry, i) -> carry
    inputs: Any  # [n, ...], of n turns
    carry: Any


def pieces(run: Run, state: RunState, t: int) -> dict[str, Piece]:
    """Return the pieces of iteration t of one member, with inputs of the real program."""
    env, algo, memory = run.env, run.algo, run.memory()
    at = jnp.int32(t)
    draws = jax.jit(iteration.draw)(run, state.key, at)
    actor = rollout.Actor(state.env, state.obs, state.carry)
    clock = clock_at(run, at)
    collect = jax.jit(rollout.collect, static_argnames="mode")
    _, played = collect(env, algo, state.agent, actor, draws.rollout, clock, mode="sample")
    played, _ = rollout.without_report(played)
    rows = jax.jit(prepare)(algo, state.agent, played)
    written = jax.jit(memory.add)(state.memory, rows, at)
    seen = stacking.observations(played, env.spec.stack)

    def environments(given, carry, i):
        noise, actions = given
        step = lambda state, x: _step_env(env, noise, state, x)
        return jax.lax.scan(step, carry[0], (noise.env.rows, actions))

    def policy(given, carry, i):
        agent, obs, noise = given
        agent = algo.acting(agent)

        def one(state, x):
            state, action, extras = algo.act(agent, state, x[0], x[1], clock, "sample")
            return state, (action, extras)

        return jax.lax.scan(one, carry[0], (obs, noise))

    def storing(given, carry, i):
        agent, trajectory = given
        return memory.add(carry, prepare(algo, agent, trajectory), at + i)

    def sampling(given, carry, i):
        mem, total = carry
        one = lambda total, x: (total + _checksum(memory.fetch(mem, x)[0]), None)
        return mem, jax.lax.scan(one, total, given)[0]

    def learning(given, carry, i):  # samples too
        plan, keys = given
        it = Iteration(at, True, lambda u=0: clock_at(run, at, u), memory, plan, keys, None, None)
        agent, mem, _ = update_all(algo, *carry, it)
        return agent, mem

    def random(given, carry, i):
        return iteration.draw(run, given, at + i)

    def with_rows(turn, given, carry):
        given = _twice(given)
        rows = jax.eval_shape(lambda: turn(tree.take(given, 0), (carry, None), at)[1])
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), rows)
        return Piece(turn, given, (carry, zeros))

    # other rows in every turn, as in a run: those of the last turn are in the processor's caches
    following = at + jnp.arange(PLANS)
    plans = jax.jit(jax.vmap(lambda t: iteration.draw(run, state.key, t)[1:]))(following)
    return {
        ENVIRONMENT: with_rows(environments, (draws.rollout, played.steps.action), actor.env),
        POLICY: with_rows(policy, (state.agent, seen, draws.rollout.act), actor.carry),
        STORING: Piece(storing, _twice((state.agent, played)), written),
        SAMPLING: Piece(sampling, plans[0], (written, jnp.float32(0))),
        LEARNING: Piece(learning, plans, (state.agent, written)),
        RANDOM: Piece(random, _twice(state.key), draws),
    }


def _twice(x: Any) -> Any:
    """Return inputs of two turns: of inputs that never change, XLA computes a piece but once."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), x)


def _checksum(batch: Any) -> jax.Array:
    """Return a number that depends on every element, so that none is left out."""
    numbers = [x for x in jax.tree.leaves(batch) if jnp.issubdtype(x.dtype, jnp.number)
               or x.dtype == bool]
    return sum((jnp.sum(x, dtype=jnp.float32) for x in numbers), jnp.float32(0))


def _step_env(env: Any, noise: Any, state: Any, x: Any) -> tuple[Any, Any]:
    drawn, action = x
    state, obs, outcome = env.step(noise.env.with_rows(drawn), state, action)
    return state, (obs, outcome._replace(info=(), score=(), over=()))


def seconds(piece: Piece, budget: float) -> float:
    """Return the seconds of one turn of a piece, measured for about `budget` seconds."""
    def turns_of(given, carry, n):
        def body(i, carry):
            own = jax.tree.map(lambda x: x[i % len(x)], given)
            return tree.strong(piece.turn(own, carry, i))

        return jax.lax.fori_loop(0, n, body, tree.strong(carry))

    loop = jax.jit(turns_of)

    def time_turns(turns: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(loop(piece.inputs, piece.carry, jnp.int32(turns)))
        return time.perf_counter() - began

    time_turns(1)  # compiles
    turns = 1
    while (once := time_turns(turns)) < budget / (2 * REPEATS) and turns < 100_000:
        turns = max(2 * turns, int(turns * budget / (REPEATS * max(once, 1e-6))))
    return min(time_turns(turns) for _ in range(REPEATS)) / turns


def check(prepared: Prepared) -> None:
    """Raise ConfigError for a run without such pieces."""
    algo, env = prepared.algo, prepared.env
    if not backend_of(env).one_program:
        reason = f"{env.spec.name} is on the host, where a run is no single program"
        raise ConfigError("--ablation", True, f"left out: {reason}")
    if algo.whole_rollouts:
        raise ConfigError("--ablation", True,
                          f"left out: {algo.name} learns from whole rollouts, in one piece")
    if prepared.population.size > 1:
        raise ConfigError("--ablation", True,
                          "left out with several members: a piece is one member's")


def time_pieces(one: TimedRun, budget: float = 0.5) -> dict[str, float]:
    """Return the seconds of each piece of an iteration alone; see `check`."""
    found = pieces(tree.as_float32(one.prepared.members.first), one.state, one.iterations)
    taken = {name: seconds(piece, budget) for name, piece in found.items()}
    return taken | {LEARNING: max(0.0, taken[LEARNING] - taken[SAMPLING])}


def group_shares(profile: Profile) -> dict[str, float]:
    """Return the shares of a profile by piece: of the parts that pieces have."""
    shares = {name: profile.share(*parts) for name, parts in GROUPS.items()}
    total = sum(shares.values()) or 1.0
    return {name: share / total for name, share in shares.items()}


def shares(seconds_of: Mapping[str, float]) -> dict[str, float]:
    """Return each piece's part of all pieces together."""
    total = sum(seconds_of.values()) or 1.0
    return {name: value / total for name, value in seconds_of.items()}


def compare_shares(profile: Profile, seconds_of: Mapping[str, float]) -> dict[str, float]:
    """Return by how much trace and pieces differ, in points (hundredths) of the iteration."""
    by_trace, by_pieces = group_shares(profile), shares(seconds_of)
    return {name: 100 * (by_trace[name] - by_pieces[name]) for name in by_pieces}
