"""CrossQ (Bhatt et al. 2024): SAC with batch normalisation and no target networks."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.control_networks import ControlNetworks
from jaxrl_fast.algorithms.sac import SAC
from jaxrl_fast.errors import ConfigError, is_number
from jaxrl_fast.fields import WIDEST, setting
from jaxrl_fast.networks import MLP, BatchNormMLP, forward
from jaxrl_fast.ops import optim
from jaxrl_fast.ops.optimizer_settings import schedule_setting


@tree.settings
class CrossQ(SAC):
    """CrossQ (Bhatt et al. 2024): SAC with batch normalisation and no target networks."""

    name: ClassVar[str] = "crossq"

    learning_rate: float = setting(1e-3, low=0, convert=schedule_setting)
    """Adam's step size"""
    adam_beta: float = setting(0.5, low=0, high=1, open_high=True)
    """beta1 of Adam"""
    policy_period: int = setting(3)
    """critic updates for each actor update"""
    critic_hidden: tuple[int, ...] = setting((1024, 1024), high=WIDEST)
    """widths of each critic's dense layers"""
    norm_momentum: float = setting(0.99, low=0, high=1, open_high=True, static=True)
    """momentum of the running statistics"""
    norm_warmup: int = setting(100_000, low=0)
    """updates before renormalisation starts"""

    def __post_init__(self):
        super().__post_init__()
        # in float32, as config.json of an older export holds it
        if is_number(self.target_tau) and np.float32(self.target_tau) != np.float32(SAC.target_tau):
            raise ConfigError("target_tau", self.target_tau,
                              f"left at {SAC.target_tau}: crossq has no target networks")
        if self.batch_size == 1:
            raise ConfigError("batch_size", 1,
                              "at least 2: batch normalisation leaves nothing of a single row")
        if self.layer_norm:
            raise ConfigError("layer_norm", True,
                              "False: the critics of crossq have batch normalisation instead")

    @property
    def default_optimizer(self):
        return optim.adam(epsilon=self.adam_epsilon, b1=self.adam_beta)

    @property
    def networks(self):
        return self._networks(train=False)

    def _networks(self, train: bool) -> ControlNetworks:
        """Return SAC's networks with batch normalisation; train: by the batch's own statistics."""
        networks = super().networks
        torso = networks.actor["torso"]
        torso = None if isinstance(torso, MLP) else torso
        norm = self.norm_momentum, self.norm_warmup
        made = lambda hidden, action: BatchNormMLP(
            self.spec.observation, hidden, self.activation, torso, action, train, *norm
        )
        actor = networks.actor | {"torso": made(self.hidden, False)}
        critic = networks.critic | {"torso": made(self.critic_hidden, True)}
        return dataclasses.replace(networks, actor=actor, critic=critic)

    def begin(self, params, moments=()):
        return super().begin(params, moments)._replace(target=())

    def learn_critics(self, agent, clock, batch, obs, boot_obs, key):
        """Update the critics on (s, a) and (s', a') in one normalised pass (section 4)."""
        boot_action, log_prob = self.sample(
            self.networks.actor_output(agent.params["actor"], boot_obs), key
        )
        action = jnp.concatenate([self.spec.action.to_unit(batch.action), boot_action])
        x = {"action": action,
             "observation": jax.tree.map(lambda *x: jnp.concatenate(x), obs, boot_obs)}
        modules = self._networks(train=True).critic

        def loss_fn(critics):
            one = lambda params: apply_learning(modules, params, x, self.precision)
            z, seen = jax.vmap(one)(critics)
            z, boot_z = jnp.split(z, 2, axis=1)
            target = jax.lax.stop_gradient(self.backup(agent, batch, boot_z, log_prob))
            loss, aux = self.critic_loss(z, target, batch)
            return loss, (*aux, seen)

        agent, (_, (metrics, error, seen)) = self.gradient_step(agent, clock, "critics", loss_fn)
        return self.keep(agent, "critics", seen), metrics, error

    def learning_output(self, params, obs):
        return apply_learning(self._networks(train=True).actor, params, obs, self.precision)

    def keep(self, agent, name, seen):
        part = agent.params[name]
        return agent._replace(params=agent.params | {name: part | {"torso": part["torso"] | seen}})


def apply_learning(modules: dict[str, Any], params: Any, x: Any,
                   precision: str) -> tuple[jax.Array, dict[str, Any]]:
    """Apply with the batch's own statistics -> (outputs, the torso's new running statistics)."""
    features, seen = forward(modules["torso"], params["torso"], x,
                             precision, mutable=["batch_stats"])
    return forward(modules["head"], params["head"], features), dict(seen)
