"""A user's program, as an editor sees it: types of public names, three mistakes in settings."""

# pyright: reportUnnecessaryTypeIgnoreComment=true
from typing import assert_type

import jax

import jaxrl_fast as jf


@jf.settings
class Mine(jf.PPO):
    extra: float = jf.setting(0.5, "an own coefficient", low=0)


env = jf.make("CartPole-v1")
algo = jf.PPO(num_envs=16, learning_rate=3e-4)
run = jf.train(algo, env, total_steps=500_000, seeds=4, out="runs/x")
steps, returns = run.curve("episode_return")
agent = jf.load("runs/x")
action = agent.act(env.init(jax.random.key(1), 5)[1])
plan = jf.plan(jf.preset("ppo", "CartPole-v1"), env, 1000)
found = jf.sweep(algo, env, 1000, grid={"algo.discount": [0.9, 0.99]}, seeds=2, out="sweeps/x")

assert_type(algo, jf.PPO)
assert_type(algo.learning_rate, float)
assert_type(Mine(extra=0.3, num_envs=4), Mine)
jf.PPO(num_env=3)  # pyright: ignore[reportCallIssue]
jf.train(algo, env, seed_s=3)  # pyright: ignore[reportCallIssue]
jf.plan(algo, env, seeds="3")  # pyright: ignore[reportArgumentType]
