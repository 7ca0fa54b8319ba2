"""The trained agent playing: one episode as pictures, and pictures as a GIF."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.actors import play
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import rollout
from jaxrl_fast.envs.api import Env, played
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.errors import ConfigError, check_float, check_int
from jaxrl_fast.files import folders
from jaxrl_fast.ops import stacking
from jaxrl_fast.types import Clock, stepwise

MAX_FRAMES = 600
MAX_BYTES = 1_500_000
MAX_FPS = 50  # browsers slow anything faster down to 10
_DRAWN = 2048  # a picture with more colours than that is a photograph or a rendered scene
_LAST_MILLISECONDS = 700  # the last picture rests a moment before the GIF starts again


def record(env: Env, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int = 500) -> list[np.ndarray] | None:
    """Play one episode greedily -> its pictures, uint8 [H, W, 3] each; None where `env` cannot be drawn.

    `algo` is bound to `env.spec`; `agent` is one member's. The last picture is the state that ended the episode, unless
    `max_steps` cut it, or the environment resets within a step of its own.
    """
    return record_all(env, algo, agent, key, max_steps)[0]


def record_all(
    env: Env, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int = 500, patience: float = 120.0
) -> tuple[list[np.ndarray] | None, str | None]:
    """(pictures of one episode as `record` plays it, the page that `Env.render_html` makes of it); None for either.

    patience: seconds that an environment on the host may take for an answer; HostError where it takes longer.
    """
    check_int("max_steps", max_steps)
    if isinstance(env, HostEnv):
        return play.frames(env, tree.as_float32(algo), agent, key, max_steps, patience), None
    states, frames = [], []
    for state in _episode(env, algo, agent, key, max_steps):
        frame = env.render(state)
        if not states and frame is None and env.render_html([state]) is None:
            return None, None
        states.append(state)
        frames.append(frame)
    return None if frames[0] is None else [np.asarray(frame) for frame in frames], env.render_html(states)


def _episode(env: Env, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int) -> Iterator[Any]:
    """The environment's states, on the host: those in which the agent acts, and the last one."""
    # A member may lie on any device of the population; one environment is played on one.
    agent, key = jax.device_put((agent, key), jax.local_devices()[0])
    # Tracing must not see Python floats: each would be a weakly typed input, and another program.
    traced_env, traced_algo = tree.as_float32((env, algo))
    start_key, play_key = jax.random.split(key)
    actor = _start(traced_env, traced_algo, start_key)
    for t in range(max_steps):
        yield jax.tree.map(_first_on_host, actor.env)
        actor, done = _step(traced_env, traced_algo, agent, actor, play_key, np.int32(t))
        if done:
            if _resets_apart(env):
                yield jax.tree.map(_first_on_host, actor.env)
            return


def _resets_apart(env: Env) -> bool:
    """Whether its step is a transition and then a reset, as the base class has it."""
    return type(env).draw is Env.draw and type(env).step is Env.step


@jax.jit
def _start(env: Env, algo: Algorithm, key: jax.Array) -> rollout.Actor:
    return rollout.init(env, algo, key, 1)


@jax.jit
def _step(env: Env, algo: Algorithm, agent: Any, actor: rollout.Actor, key: jax.Array, t: jax.Array):
    """One step of one environment -> (actor, whether the episode ended); without a reset where that can be."""
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1.0))
    noise = rollout.draw_again(env, algo, random.keys_at(key, t, 2), 1, actor)
    if not _resets_apart(env):
        actor, trajectory = rollout.collect(env, algo, agent, actor, noise, clock, "greedy")
        return actor, trajectory.steps.done[0, 0]
    stepped, join = stepwise(noise)
    noise = join([x[0] for x in stepped])
    carry, action, _ = algo.act(algo.acting(agent), actor.carry, actor.obs, noise.act, clock, "greedy")
    state, outcome = played(env, noise.env[0], actor.env, action)
    done = outcome.terminated | outcome.truncated
    state, obs = tree.strong((state, stacking.advance(actor.obs, outcome.next_obs, done, env.spec.stack)))
    return rollout.Actor(state, obs, carry), done[0]


def _first_on_host(leaf: jax.Array) -> Any:
    """The only environment of [1, ...]; random keys have no NumPy form and stay what they are."""
    return leaf[0] if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)[0]


def pace(step_seconds: float | None, steps: int) -> tuple[int, float]:
    """(every how many-th picture to show, how many a second) for an episode to play as fast as it happened.

    Not slower than 5 a second; where a step has no time of its own, by what is good to look at.
    """
    if step_seconds is None:
        return 1, 30 if steps > 100 else 10
    stride = max(1, math.ceil(1 / (step_seconds * MAX_FPS) - 1e-6))
    return stride, min(max(1 / (step_seconds * stride), 5.0), MAX_FPS)


def rollout_gif(frames: Sequence[np.ndarray], path: str | Path, fps: float = 30, max_bytes: int = MAX_BYTES) -> Path:
    """Write pictures (uint8 [H, W, 3], all of one size) as a GIF that plays for ever, and return its path.

    At most 600 pictures are kept, evenly spaced, and every second one is dropped while the file is larger than
    `max_bytes`; the others are shown longer, so the speed stays. GIF counts in hundredths of a second: 30 becomes 33.
    """
    check_float("fps", fps, 0, MAX_FPS, open_low=True)
    frames = [np.asarray(frame) for frame in frames]
    shapes = {(f.shape, f.dtype.name) for f in frames}
    if len(shapes) != 1 or next(iter(shapes))[1] != "uint8" or frames[0].ndim != 3 or frames[0].shape[2] != 3:
        raise ConfigError("frames", sorted(shapes), "one or more pictures of one size, uint8 [height, width, 3]")
    # 20 ms is the shortest that browsers play as written.
    milliseconds = max(2, round(100 / fps)) * 10
    stride = -(-len(frames) // MAX_FRAMES)
    images = _indexed(frames[::stride])
    content = _encode(images, milliseconds * stride)
    while len(content) > max_bytes and len(images) > 10:
        images, stride = images[::2], stride * 2
        content = _encode(images, milliseconds * stride)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with folders.replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def _indexed(frames: list[np.ndarray]) -> list[Any]:
    """Every picture in one palette, taken from a few of them: pictures that share it can be stored as differences."""
    from PIL import Image

    few = np.concatenate(frames[:: -(-len(frames) // 8)])
    packed = few.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, counts = np.unique(packed, return_counts=True)
    if len(colours) <= _DRAWN:  # a drawing: its own commonest colours, so that white stays white
        colours = colours[np.argsort(-counts, kind="stable")[:256]]
        palette = Image.new("P", (1, 1))
        palette.putpalette(np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1).astype(np.uint8).tobytes())
    else:
        palette = Image.fromarray(few).quantize(256, method=Image.Quantize.MEDIANCUT)
    # Dithering would make noise of flat colours: ugly, and it does not compress.
    return [Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]


def _encode(images: list[Any], milliseconds: int) -> bytes:
    durations = [milliseconds] * (len(images) - 1) + [max(milliseconds, _LAST_MILLISECONDS)]
    file = io.BytesIO()
    images[0].save(
        file, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False, disposal=1
    )
    return file.getvalue()
