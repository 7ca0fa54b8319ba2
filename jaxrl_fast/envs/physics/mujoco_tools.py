"""MuJoCo for the adapters: a quiet import, and pictures."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import importlib
import importlib.util
import io
import os
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

HEIGHT, WIDTH = 180, 240  # 500 pictures are drawn in seconds and make a GIF of about a megabyte


@contextlib.contextmanager
def _gl_without_display() -> Iterator[None]:
    """Let MuJoCo draw by EGL without a display, if the user chose nothing; set at import."""
    chosen = any(map(os.environ.get, ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")))
    egl = not chosen and sys.platform == "linux" and importlib.util.find_spec("OpenGL") is not None
    try:
        if egl:
            ctypes.CDLL("libEGL.so.1")  # else importing `mujoco` would fail
            os.environ["MUJOCO_GL"] = "egl"
    except OSError:
        egl = False
    try:
        yield
    finally:
        if egl:
            del os.environ["MUJOCO_GL"]


def import_quietly(name: str) -> types.ModuleType:
    """Import a module that imports MuJoCo, without its message about `warp`."""
    silent = contextlib.redirect_stdout(io.StringIO())
    with _gl_without_display(), silent, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return importlib.import_module(name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence brax's and MuJoCo's notes on maintenance and old XML, and MUJOCO_LOG.TXT."""
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None if "deprecated" in text
                                else warnings.warn(text, stacklevel=2))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Brax System, pip.?lines and environments",
                                    category=UserWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            yield
    finally:
        mujoco.set_mju_user_warning(before)


@functools.lru_cache(maxsize=4)  # a renderer holds an OpenGL context
def _renderer(model: Any) -> tuple[Any, Any, Any] | None:
    """Return (renderer, MjData, camera) of a model; None if OpenGL does not work."""
    import mujoco

    model = copy.copy(model)
    # without a GPU: 5 ms a picture instead of 160 with samples and shadows
    model.vis.quality.offsamples = 0
    try:
        renderer = mujoco.Renderer(model, HEIGHT, WIDTH)
    except Exception:  # no EGL, no display, a driver that refuses
        return None
    # a camera that follows the body, else the default one
    names = [model.camera(i).name for i in range(model.ncam)]
    fixed = mujoco.mjtCamLight.mjCAMLIGHT_FIXED
    following = [i for i in range(model.ncam) if model.cam_mode[i] != fixed]
    camera = following[0] if following else (0 if names else -1)
    return renderer, mujoco.MjData(model), camera


def picture(model: Any, qpos: Any, qvel: Any,
            mocap: tuple[Any, Any] | None = None) -> np.ndarray | None:
    """Draw an `MjModel` in a state, uint8 [HEIGHT, WIDTH, 3]; None if nothing can be drawn."""
    import mujoco

    found = _renderer(model)
    if found is None:
        return None
    renderer, data, camera = found
    data.qpos, data.qvel = qpos, qvel
    if mocap is not None:
        data.mocap_pos, data.mocap_quat = mocap
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, camera=camera)
    for effect in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        renderer.scene.flags[effect] = False
    return renderer.render()
