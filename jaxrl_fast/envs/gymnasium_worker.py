"""What runs beside each of Gymnasium's environments, in this process or in one of its own: light to import.

Gymnasium hands on whatever array an environment returns: one that it writes to again would change under the terminal
observation, and one of another shape is flattened into the memory that processes share.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Checked(gymnasium.ObservationWrapper):
    """Observations are copies, and of their space's shape."""

    def observation(self, observation: Any) -> Any:
        return _copied(self.observation_space, observation, "")


def _copied(space: Any, observation: Any, where: str) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _copied(inner, observation[key], f"{where}[{key!r}]") for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_copied(inner, observation[i], f"{where}[{i}]") for i, inner in enumerate(space.spaces))
    found = np.array(observation)
    if found.shape != space.shape:
        raise ValueError(f"observations{where} of shape {list(found.shape)}, where their space has {list(space.shape)}")
    return found
