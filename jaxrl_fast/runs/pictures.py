"""Pictures of the trained agent: one episode as frames, and frames as a GIF or MP4."""

from __future__ import annotations

import io
import math
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.backend import Film, backend_of
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, MissingExtraError, RunError, check_float, check_int
from jaxrl_fast.files import folders
from jaxrl_fast.logs import html

MAX_FRAMES = 600
MAX_BYTES = 1_500_000
MAX_FPS = 50  # browsers slow faster GIFs down to 10
FFMPEG = "IMAGEIO_FFMPEG_EXE"  # environment variable: the path of ffmpeg
PATIENCE = 60  # seconds for ffmpeg to write a film
_DRAWN = 2048  # more colours: a photograph or rendered scene
_LAST_MILLISECONDS = 700  # the last frame rests before the GIF repeats


def film(
    env: Environment, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int = 500,
    patience: float = 120.0, most: int | None = None,
) -> Film:  # fmt: skip
    """Play one greedy episode -> its frames, uint8 [H, W, 3] each, and the environment's page.

    `algo` is bound; `agent` is one member's. The last frame shows the final state, unless
    `max_steps` cut the episode. patience: seconds to wait for a host environment. most: pictures,
    evenly spread; None: one of every state.
    """
    check_int("max_steps", max_steps)
    return backend_of(env).film(env, algo, agent, key, max_steps, patience, most)


class Video(NamedTuple):
    """Pictures of an episode, which a notebook shows as a GIF; `save` writes them."""

    frames: list[np.ndarray]  # uint8 [H, W, 3] each
    fps: float

    @classmethod
    def of(cls, film: Film, name: str = "") -> Video:
        """Return a film at its own speed. Raises ConfigError if the environment has no pictures."""
        if not film.frames:
            raise ConfigError("environment", name, "one that is drawn: by `render` of a jf.Env, or "
                                                   "Gymnasium's render_mode 'rgb_array'")
        stride, fps = pace(film.step_seconds, len(film.frames))
        return cls(film.frames[::stride], fps)

    def __repr__(self) -> str:
        height, width, _ = self.frames[0].shape
        return f"<Video: {len(self.frames)} frames of {width} x {height}, {self.fps:g} a second>"

    def _repr_html_(self) -> str:
        return html.image(gif(self.frames, self.fps), "gif", "an episode")

    def save(self, path: str | Path) -> Path:
        """Write a GIF, or an MP4 (extra [video]), as `path` ends; return the path."""
        kind = Path(path).suffix.lower()
        if kind not in (".gif", ".mp4"):
            raise ConfigError("path", str(path), "a name that ends with .gif or .mp4")
        if kind == ".mp4":
            return write_whole(path, mp4(self.frames, self.fps))
        return rollout_gif(self.frames, path, self.fps)


def pace(step_seconds: float | None, steps: int) -> tuple[int, float]:
    """Return (stride, frames a second, at least 5) to show an episode at its own speed."""
    if step_seconds is None:
        return 1, 30 if steps > 100 else 10
    stride = max(1, math.ceil(1 / (step_seconds * MAX_FPS) - 1e-6))
    return stride, min(max(1 / (step_seconds * stride), 5.0), MAX_FPS)


def rollout_gif(frames: Sequence[np.ndarray], path: str | Path,
                fps: float = 30, max_bytes: int = MAX_BYTES) -> Path:
    """Write frames (uint8 [H, W, 3], one size) as an endless GIF -> its path; see `gif`."""
    return write_whole(path, gif(frames, fps, max_bytes))


def write_whole(path: str | Path, content: bytes) -> Path:
    """Write a file whole or not at all, and return its path; makes its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with folders.replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def gif(frames: Sequence[np.ndarray], fps: float = 30, max_bytes: int = MAX_BYTES) -> bytes:
    """Return frames (uint8 [H, W, 3], one size) as an endless GIF.

    Keeps at most 600 frames, fewer while the file exceeds `max_bytes`; the speed stays.
    """
    check_float("fps", fps, 0, MAX_FPS, open_low=True)
    frames = _checked(frames)
    # 20 ms is the shortest that browsers play as written.
    milliseconds = max(2, round(100 / fps)) * 10
    stride = -(-len(frames) // MAX_FRAMES)
    images = _indexed(frames[::stride])
    content = _encode(images, milliseconds * stride)
    while len(content) > max_bytes and len(images) > 10:
        images, stride = images[::2], stride * 2
        content = _encode(images, milliseconds * stride)
    return content


def _checked(frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    frames = [np.asarray(frame) for frame in frames]
    shapes = {(f.shape, f.dtype.name) for f in frames}
    if len(shapes) != 1 or next(iter(shapes))[1] != "uint8" or frames[0].ndim != 3 or frames[
        0
    ].shape[2] != 3:
        raise ConfigError("frames", sorted(shapes),
                          "one or more pictures of one size, uint8 [height, width, 3]")
    return frames


def ffmpeg() -> str:
    """Return the path of ffmpeg. Raises MissingExtraError without the extra [video]."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except ImportError as error:
        raise MissingExtraError("an MP4 video", "video") from error
    except RuntimeError as error:  # a package without a binary, or a wrong path
        valid = "unset, or the path of ffmpeg: the package imageio-ffmpeg finds none"
        raise ConfigError(FFMPEG, os.environ.get(FFMPEG, ""), valid) from error


def mp4(frames: Sequence[np.ndarray], fps: float = 30) -> bytes:
    """Return frames (uint8 [H, W, 3], one size) as an MP4 (H.264, yuv420p), which browsers play.

    An odd height or width gets a row or column more: the colours need even ones.

    Raises:
        MissingExtraError: the extra [video] is missing.
        RunError: ffmpeg failed.
    """
    check_float("fps", fps, 0, MAX_FPS, open_low=True)
    frames = _checked(frames)
    height, width, _ = frames[0].shape
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{even.shape[2]}x{even.shape[1]}",
           "-r", f"{fps:g}", "-i", "-"]
    how = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-preset", "veryfast",
           "-threads", "1", "-movflags", "+faststart"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        # imageio_ffmpeg's writer forks Python, which can hang beside JAX's threads
        command = [ffmpeg(), "-v", "error", *raw, *how, str(path)]
        data = even.data.cast("B")
        try:
            subprocess.run(command, input=data, check=True, capture_output=True,
                           timeout=PATIENCE, process_group=0)
        except subprocess.SubprocessError as error:
            said = (getattr(error, "stderr", None)
                    or b"").decode(errors="replace").strip().splitlines()
            why = said[-1] if said else f"no answer in {PATIENCE} s"
            raise RunError(f"ffmpeg wrote no MP4 of {width} x {height} pictures: {why}. Write a "
                           "GIF instead.") from error
        return path.read_bytes()


def _indexed(frames: list[np.ndarray]) -> list[Any]:
    """Convert frames to one palette of a few of them, so they can be stored as differences."""
    from PIL import Image

    few = np.concatenate(frames[:: -(-len(frames) // 8)])
    packed = few.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, counts = np.unique(packed, return_counts=True)
    if len(colours) <= _DRAWN:  # a drawing: its commonest colours, so white stays white
        colours = colours[np.argsort(-counts, kind="stable")[:256]]
        palette = Image.new("P", (1, 1))
        channels = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1)
        palette.putpalette(channels.astype(np.uint8).tobytes())
    else:
        palette = Image.fromarray(few).quantize(256, method=Image.Quantize.MEDIANCUT)
    # Dithering would turn flat colours into noise that does not compress.
    return [Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]


def _encode(images: list[Any], milliseconds: int) -> bytes:
    durations = [milliseconds] * (len(images) - 1) + [max(milliseconds, _LAST_MILLISECONDS)]
    file = io.BytesIO()
    images[0].save(
        file, "GIF", save_all=True, append_images=images[1:], duration=durations,
        loop=0, optimize=False, disposal=1
    )
    return file.getvalue()
