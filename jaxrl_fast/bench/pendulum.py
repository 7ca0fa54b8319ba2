"""SAC on Pendulum-v1 at rejax's settings, ours and rejax's."""

from __future__ import annotations

from typing import Any

from jaxrl_fast.bench import ours, peers, theirs
from jaxrl_fast.bench.race import Contestant
from jaxrl_fast.bench.theirs import typed_key

REJAX_SAC: dict[str, Any] = dict(  # configs/gymnax/pendulum.yaml of rejax
    num_envs=1, buffer_size=10_000, fill_buffer=256, batch_size=256, learning_rate=0.01,
    num_epochs=1, total_timesteps=10_000, gamma=0.99, polyak=0.98, normalize_observations=True,
)  # fmt: skip
COMMON: dict[str, Any] = dict(
    num_envs=1, updates_per_iteration=1, buffer_size=10_000, discount=0.99,
    normalize_observations=True, hidden=(64, 64), critic_hidden=(64, 64), activation="silu",
)  # fmt: skip


def sac(jf):
    """Return our SAC at rejax's settings."""
    own: dict[str, Any] = dict(learning_starts=256, batch_size=256,
                               learning_rate=0.01, target_tau=0.02)
    return jf.SAC(**COMMON, **own)


def rejax_pendulum(rejax, name, settings, steps, notes):
    """Return [rejax's `name` on Pendulum-v1], or [] and a note without its checkout.

    Its evaluations are left out.
    """

    def peer():
        program = theirs.rejax_program(peers.rejax(rejax), name, "Pendulum-v1", steps, settings)
        return Contestant("rejax", steps, lambda: program, typed_key)

    return theirs.load_or_note(notes, peer)


def pendulum(jf, rejax, steps, notes):
    """Return SAC on Pendulum-v1 over `steps` steps, ours and rejax's, at rejax's settings."""
    build = lambda: jf.make_train(sac(jf), jf.make("Pendulum-v1"), total_steps=steps)
    score = lambda out: ours.final_return(out[1])
    settings = REJAX_SAC | {"agent_kwargs": {"activation": "swish"}}
    peer = rejax_pendulum(rejax, "sac", settings, steps, notes)
    return [Contestant("jaxrl_fast", steps, build, typed_key, score, ours.env_steps), *peer]
