"""The algorithm skeleton: REINFORCE with a baseline. CONTRIBUTING.md explains each method."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import jaxrl_fast as jf
from jaxrl_fast import networks, random, spaces
from jaxrl_fast.ops import distributions, optim, returns
from jaxrl_fast.memory import RolloutMemory
from jaxrl_fast.networks import Dense, make_torso
from jaxrl_fast.types import Mean


class Agent(NamedTuple):
    params: Any
    opt_state: Any


class Rows(NamedTuple):  # the part of a step that the memory stores
    obs: Any
    action: jax.Array
    ret: jax.Array


@jf.register_algorithm
@jf.settings
class Skeleton(jf.Algorithm):
    """Policy gradient with a learned baseline (Williams 1992): change `prepare` and `update`."""

    name: ClassVar[str] = "skeleton"
    action_spaces: ClassVar[tuple[type, ...]] = (jf.Discrete,)

    num_envs: int = jf.setting(16, "environments stepped together")
    num_steps: int = jf.setting(32, "steps of each in one rollout")
    learning_rate: float = jf.setting(3e-3, "Adam's step size", low=0)  # a float: traced, sweepable
    discount: float = jf.setting(0.99, "gamma", low=0, high=1)
    # anything but a float: part of the program
    hidden: tuple[int, ...] = jf.setting((64,), "widths of the torso", high=1_000_000)

    @property
    def updates(self):
        return 1  # optimizer steps an iteration

    def memory(self):
        return RolloutMemory(self.num_steps, self.num_envs, num_minibatches=1)

    @property
    def parts(self):  # modules are made where they are used; `self.spec` is the environment's
        torso = make_torso("auto", self.spec.observation, self.hidden, "tanh")
        return {"torso": torso, "policy": Dense(self.spec.action.n, 0.01), "value": Dense(1, 1.0)}

    def init(self, key):
        keys = random.split(key, 3)
        x = spaces.zeros(self.spec.observation, (1,))
        params = {"torso": self.parts["torso"].init(keys[0], x)}
        x = self.parts["torso"].apply(params["torso"], x)
        for name, k in zip(("policy", "value"), keys[1:], strict=True):
            params[name] = self.parts[name].init(k, x)
        return Agent(params, optim.adam().init(params))

    def forward(self, params, obs):
        apply = lambda name, x, *how: networks.forward(self.parts[name], params[name], x, *how)
        # `precision` is a setting of every algorithm; heads multiply in float32
        x = apply("torso", obs, self.precision)
        return distributions.Categorical(apply("policy", x)), apply("value", x)[..., 0]

    def draw(self, key, num_steps, num_envs):  # everything random of a rollout's `act`s
        return distributions.draw_noise(key, self.spec.action, (num_steps, num_envs))

    def act(self, agent, carry, obs, noise, clock, mode):
        if mode == "random":
            return carry, distributions.random_action(noise, self.spec.action), ()
        policy, _ = self.forward(agent.params, obs)
        return carry, policy.mode() if mode == "greedy" else policy.sample(noise), ()

    def prepare(self, agent, trajectory):
        s = trajectory.steps
        # the true successors, terminal ones included
        _, next_value = self.forward(agent.params, s.next_obs)
        ret = returns.lambda_returns(s.reward, s.terminated, s.done, next_value, self.discount, 1.0)
        return Rows(s.obs, s.action, ret)

    def update(self, agent, batch, key, clock):
        def loss_fn(params):
            policy, value = self.forward(params, batch.obs)
            advantage = batch.ret - jax.lax.stop_gradient(value)
            policy_loss = -jnp.mean(policy.log_prob(batch.action) * advantage)
            value_loss = jnp.mean(jnp.square(value - batch.ret))
            metrics = {"policy_loss": policy_loss, "value_loss": value_loss}  # columns of the log
            return policy_loss + 0.5 * value_loss, metrics

        grads, metrics = jax.grad(loss_fn, has_aux=True)(agent.params)
        rate = clock.anneal(self.learning_rate, 0.0)  # schedules are fractions of the horizon
        params, opt_state = optim.apply(optim.adam(), rate, agent.params, grads, agent.opt_state)
        return Agent(params, opt_state), {k: Mean.of(v) for k, v in metrics.items()}, ()
