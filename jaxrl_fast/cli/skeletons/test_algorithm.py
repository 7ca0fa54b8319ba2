"""The algorithm skeleton learns, and trains several seeds in one program."""

import jax
import jaxrl_fast as jf

from skeleton import Skeleton


def test_it_learns_which_action_pays():
    """A probe whose best return is 1; others are in `jaxrl-fast list environments`."""
    run = jf.train(Skeleton(), jf.make("probe/action-reward"), 20_000, progress=False)
    assert run.eval_return.mean() > 0.9


def test_its_programs_take_several_seeds():
    train = jf.make_train(Skeleton(num_envs=4, num_steps=8), jf.make("CartPole-v1"), 256)
    _, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 2))
    assert metrics["policy_loss"].shape[0] == 2
