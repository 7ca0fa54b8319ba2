"""Environments stepped by random actions: in a program, and from the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxrl_fast.bench.race import Contestant, Loop
from jaxrl_fast.bench.theirs import old_key

ROLLOUT = 100  # steps whose randomness we draw at once
EPISODE = 1000  # most steps of a brax episode


def ours(name: str, envs: int, steps: int, **settings: Any) -> Contestant:
    """Our environment, reset where an episode ends."""

    def build() -> Callable:
        import jax
        import jax.numpy as jnp

        import jaxrl_fast as jf
        from jaxrl_fast.engine.rollout import collect, draw, init
        from jaxrl_fast.types import Clock

        env, clock = jf.make(name, **settings), Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0))
        algo = jf.PPO(num_envs=envs).bind(env.spec)

        def run(key: jax.Array) -> tuple:
            first, start, rest = jax.random.split(key, 3)
            agent = algo.init(first)

            def rollout(actor: Any, key: jax.Array) -> tuple:
                noise = draw(env, algo, jax.random.split(key), ROLLOUT, envs, jnp.int32(0))
                actor, played = collect(env, algo, agent, actor, noise, clock, "random")
                return actor, (played.steps.reward, played.steps.next_obs)

            keys = jax.random.split(rest, max(1, steps // ROLLOUT))
            return jax.lax.scan(rollout, init(env, algo, start, envs), keys)[1]

        return run

    return Contestant("jaxrl_fast", max(1, steps // ROLLOUT) * ROLLOUT * envs, build, old_key)


def gymnax(name: str, envs: int, steps: int) -> Contestant:
    """gymnax's environment as its README steps it, reset where an episode ends."""

    def build() -> Callable:
        import gymnax
        import jax

        env, params = gymnax.make(name)
        act = jax.vmap(env.action_space(params).sample)
        step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

        def run(key: jax.Array) -> tuple:
            def one(state: Any, key: jax.Array) -> tuple:
                action_key, step_key = jax.random.split(key)
                actions = act(jax.random.split(action_key, envs))
                keys = jax.random.split(step_key, envs)
                obs, state, reward, *_ = step(keys, state, actions, params)
                return state, (reward, obs)

            first, rest = jax.random.split(key)
            _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(first, envs), params)
            return jax.lax.scan(one, state, jax.random.split(rest, steps))[1]

        return run

    return Contestant("gymnax", steps * envs, build, old_key)


def brax(name: str, envs: int, steps: int) -> Contestant:
    """brax's environment in its training wrapper, which puts a cached first state back."""

    def build() -> Callable:
        import jax
        from brax import envs as there

        env = there.get_environment(name, backend="spring")
        env = there.training.wrap(env, episode_length=EPISODE)

        def run(key: jax.Array) -> tuple:
            keys = jax.random.split(key, envs + 1)
            actions = jax.random.uniform(keys[-1], (steps, envs, env.action_size), minval=-1.0)

            def one(state: Any, action: jax.Array) -> tuple:
                state = env.step(state, action)
                return state, (state.reward, state.obs)

            return jax.lax.scan(one, env.reset(keys[:-1]), actions)[1]

        return run

    return Contestant("brax", steps * envs, build, old_key)


def vector(name: str, make: Callable[[], Any], envs: int, steps: int) -> Loop:
    """A Gymnasium vector of CartPoles, stepped by actions that were drawn before."""

    def build() -> Callable[[], None]:
        import numpy as np

        env = make()
        env.reset()
        actions = np.random.default_rng(0).integers(0, 2, (64, envs)).astype(np.int32)

        def play() -> None:
            for i in range(steps):
                env.step(actions[i % 64])

        return play

    return Loop(name, steps * envs, build)


def exported(envs: int, steps: int) -> Loop:
    """Our CartPole as a Gymnasium vector."""
    import jaxrl_fast as jf

    return vector("jaxrl_fast", lambda: jf.to_gymnasium(jf.make("CartPole-v1"), envs), envs, steps)


def gymnasium(envs: int, steps: int) -> Loop:
    """Gymnasium's own vectorized CartPole."""
    import gymnasium as there

    make = lambda: there.make_vec("CartPole-v1", envs, vectorization_mode="vector_entry_point")
    return vector("Gymnasium", make, envs, steps)


def envpool(envs: int, steps: int) -> Loop:
    """EnvPool's CartPole, all environments a step."""
    import envpool as there

    make = lambda: there.make("CartPole-v1", env_type="gymnasium", num_envs=envs)
    return vector("EnvPool", make, envs, steps)
