"""Train PPO on CartPole-v1, every seed in one compiled program; a file to copy.

python scripts/ppo_cartpole.py [--total-steps 500000] [--seeds 4]
"""

import argparse
import time

import jax
import jax.numpy as jnp

import jaxrl_fast as jf

parser = argparse.ArgumentParser()
parser.add_argument("--total-steps", type=int, default=500_000,
                    help="environment steps of each seed")
parser.add_argument("--seeds", type=int, default=4)
args = parser.parse_args()

env = jf.make("CartPole-v1")
algo = jf.preset("ppo", "CartPole-v1")  # your own: jf.PPO(num_envs=16, learning_rate=3e-4)
train = jf.make_train(algo, env, args.total_steps, log_every=max(1, args.total_steps // 20))

keys = jax.random.split(jax.random.key(0), args.seeds)
program = jax.jit(jax.vmap(train)).lower(keys).compile()
compiled = time.perf_counter()
state, metrics = jax.block_until_ready(program(keys))  # metrics: {name: [seeds, rows]}
seconds = time.perf_counter() - compiled

print("env steps   return (mean over seeds)")
for steps, value in zip(metrics["env_steps"][0], jnp.nanmean(metrics["episode_return"], axis=0),
                        strict=True):
    print(f"{steps:9,}   {value:6.1f} {'#' * int(jnp.nan_to_num(value) / 10)}")

score = jax.jit(
    jax.vmap(lambda agent, key: jf.evaluate(env, algo.bind(env.spec), agent, key).ret.mean()))
print("evaluation of each seed, 128 episodes:", score(state.agent, keys).round(1))
total = int(metrics["env_steps"][0, -1]) * args.seeds
print(f"{total:,} steps in {seconds:.1f} s after compiling, {total / seconds:,.0f} steps/s")
