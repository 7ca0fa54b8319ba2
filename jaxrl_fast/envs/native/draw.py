"""Small pictures for `Env.render`: shapes and grids of channels. NumPy and Pillow."""

from __future__ import annotations

import numpy as np

BLACK, GREY, BLUE, ORANGE = (30, 30, 34), (190, 190, 195), (64, 111, 184), (222, 132, 58)
# One colour a channel, distinct for the colour-blind (after Okabe & Ito 2008).
CHANNELS = np.array([
    (240, 228, 66), (86, 180, 233), (150, 150, 160), (230, 120, 30), (0, 158, 115),
    (204, 121, 167), (213, 94, 0), (60, 120, 200), (245, 245, 245), (160, 220, 120),
], np.uint8)  # fmt: skip
GROUND = np.array((24, 24, 30), np.uint8)
_SUPERSAMPLE = 2  # drawn at twice the size: shrinking smooths the edges


class Canvas:
    """A white picture of `width` x `height` pixels of the world `xs` x `ys`, y upwards."""

    def __init__(self, xs: tuple[float, float], ys: tuple[float, float], width: int, height: int):
        from PIL import Image, ImageDraw  # imported on use

        self._xs, self._ys = xs, ys
        self._image = Image.new("RGB", (width * _SUPERSAMPLE, height * _SUPERSAMPLE),
                                (255, 255, 255))
        self._draw = ImageDraw.Draw(self._image)
        self._scale = width * _SUPERSAMPLE / (xs[1] - xs[0])  # pixels a world unit

    def _pixel(self, point) -> tuple[float, float]:
        (x, y), (width, height) = point, self._image.size
        return (
            (float(x) - self._xs[0]) / (self._xs[1] - self._xs[0]) * width,
            (self._ys[1] - float(y)) / (self._ys[1] - self._ys[0]) * height,
        )

    def line(self, points, colour, thickness: float) -> None:
        """Draw a polyline with round ends."""
        width = max(1, round(thickness * self._scale))
        pixels = [self._pixel(p) for p in points]
        self._draw.line(pixels, colour, width, joint="curve")
        for p in (points[0], points[-1]):
            self.disc(p, thickness / 2, colour)

    def disc(self, centre, radius: float, colour) -> None:
        x, y = self._pixel(centre)
        r = radius * self._scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def polygon(self, points, colour) -> None:
        self._draw.polygon([self._pixel(p) for p in points], fill=colour)

    def image(self) -> np.ndarray:
        """Return uint8 [height, width, 3]."""
        return np.asarray(self._image.reduce(_SUPERSAMPLE)).copy()


def grid(channels: np.ndarray, cell: int = 20) -> np.ndarray:
    """Draw a grid [H, W(, C)] of zeros and ones -> uint8 [H * cell, W * cell, 3], edges dark."""
    channels = np.asarray(channels)
    if channels.ndim == 2:
        channels = channels[..., None]
    image = np.broadcast_to(GROUND, (*channels.shape[:2], 3)).copy()
    for c in range(channels.shape[-1]):
        image[channels[..., c] > 0] = CHANNELS[c % len(CHANNELS)]
    image = image.repeat(cell, axis=0).repeat(cell, axis=1)
    image[::cell, :], image[:, ::cell] = GROUND // 2, GROUND // 2
    return image
