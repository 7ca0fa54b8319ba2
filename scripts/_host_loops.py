"""Host loops that race: our actors, packages' vectors and their XLA interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NUM_STEPS = 32  # of a rollout


def stepped(make: Callable[[], Any], steps: int) -> Callable[[], Callable[[], Any]]:
    """`build` of a loop that steps a Gymnasium vector by random actions."""
    import numpy as np

    def build():
        envs = make()
        actions = np.random.default_rng(0).integers(0, 2, (64, envs.num_envs))
        envs.reset(seed=0)

        def play():
            for i in range(steps):
                envs.step(actions[i % 64])

        return play

    return build


def in_program(name: str, num_envs: int, num_steps: int,
               hidden: tuple[int, ...]) -> Callable[[], Any] | None:
    """Rollouts as one XLA program that calls the package's own environments (`xla()`); None where
    it has no such thing."""
    import jax
    import jax.numpy as jnp

    import jaxrl_fast as jf
    from jaxrl_fast import tree
    from jaxrl_fast.actors.play import begin, see, start_clock

    if name.startswith("ale:"):
        vector = jf.make(name)._vector(num_envs, "NextStep")  # the only mode that it has there
        handle, reset, step = vector.xla()
        handle, first = reset(handle)
        look = lambda out: out[0].reshape(num_envs, *out[0].shape[-2:])[..., None]
        rest = lambda out: out[1:4]
    elif name.startswith("envpool:"):
        vector = innermost(jf.make(name).open(num_envs, 0))
        handle, receive, _, step = vector.xla()
        vector.async_reset()
        handle, first = jax.jit(receive)(handle)
        look = lambda out: jnp.moveaxis(out[0], 1, -1)
        rest = lambda out: out[1:4]
    else:
        return None
    env = jf.make(name)
    algo = (
        jf.PPO(num_envs=num_envs, num_steps=num_steps, network="mlp", hidden=hidden).bind(env.spec))
    agent = jax.jit(algo.init)(jax.random.key(0))
    actor = begin(algo, look(first))

    @jax.jit
    def rollout(handle, actor, key):
        def one(carry, noise):
            handle, actor = carry
            _, action, extras = algo.act(agent, (), actor.obs, noise, start_clock(), "sample")
            handle, out = step(handle, action)
            obs, (reward, terminated, truncated) = look(out), rest(out)
            actor = see(algo, actor, obs, terminated | truncated)
            return (handle, actor), (obs, action, reward, terminated, truncated, extras)

        return jax.lax.scan(one, (handle, actor), tree.strong(algo.draw(key, num_steps, num_envs)))

    held = [handle, actor, 0]

    def play():
        (held[0], held[1]), rows = rollout(held[0], held[1], jax.random.key(held[2]))
        held[2] += 1
        jax.block_until_ready(rows)

    return play


def played(
    kind: type, name: str, num_envs: int, rollouts: int, groups: int, hidden: tuple[int, ...],
    **settings: Any
) -> Callable[[], Any]:  # fmt: skip
    """Rollouts by actors (`Actors`, `RayActors`) in lock-step, without a learner."""
    import jax

    import jaxrl_fast as jf
    from jaxrl_fast import tree
    from jaxrl_fast.engine.config import RunConfig
    from jaxrl_fast.engine.members import build_run

    env = jf.make(name, **settings)
    algo = jf.PPO(num_envs=num_envs, num_steps=NUM_STEPS, network="mlp", hidden=hidden)
    run = tree.as_float32(build_run(algo, env, RunConfig()))
    agent = jax.jit(run.algo.init)(jax.random.key(0))
    actors, t = kind(run, env, jax.random.key(0), warmup=0, groups=groups), 0
    actors.start(0, agent)
    actors.take(0)

    def play():  # between its turns it waits for an agent
        nonlocal t
        for _ in range(rollouts):
            t += 1
            actors.give(t, agent)
            jax.block_until_ready(actors.take(t).parts)

    return play


def innermost(vector: Any) -> Any:
    """Return the environment inside our wrappers."""
    while hasattr(vector, "vector") and hasattr(vector, "receive"):
        vector = vector.vector
    return getattr(vector, "pool", vector)


def vector_actions(name: str) -> int:
    import jaxrl_fast as jf

    return jf.make(name).spec.action.n


def raw_vector(name: str, num_envs: int) -> Callable[[int], Callable[[], Any]]:
    """The vector behind `name`, as its package gives it: no check, no conversion, no policy."""
    import numpy as np

    def build(steps):
        import jaxrl_fast as jf

        vector = innermost(jf.make(name).open(num_envs, 0))
        vector.reset()
        actions = np.random.default_rng(0).integers(0, vector_actions(name), (64, num_envs))

        def play():
            for i in range(steps):
                vector.step(actions[i % 64])

        return play

    return build
