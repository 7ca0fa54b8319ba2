"""The ladder's first rung: a book's DQN on Pong, in PyTorch.

Lapan, "Deep Reinforcement Learning Hands-On": one environment behind Gymnasium's Python wrappers, a
list as replay, an update of 32 transitions for every step.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

REPLAY, BATCH, DISCOUNT, STEP_SIZE, SYNC = 100_000, 32, 0.99, 1e-4, 1_000
EPSILON_END, EPSILON_STEPS = 0.02, 100_000


def play(make: Callable[[], Any], seed: int, start: int) -> Iterator[tuple[int, float | None]]:
    """Train for ever -> (agent steps so far, the score of a game that has just ended).

    make: of an environment with stacks of four frames.  start: transitions before the first update.
    """
    import torch
    from torch import nn

    random.seed(seed)
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    env = make()
    actions = int(env.action_space.n)

    def network() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions),
        ).to(device)  # fmt: skip

    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=STEP_SIZE)
    replay: collections.deque = collections.deque(maxlen=REPLAY)
    tensor = lambda x: torch.as_tensor(np.asarray(x), device=device)
    pixels = lambda frames: tensor(frames).float() / 255.0
    obs, score, step = np.asarray(env.reset(seed=seed)[0]), 0.0, 0
    while True:
        step += 1
        epsilon = max(EPSILON_END, 1.0 - step / EPSILON_STEPS)
        if random.random() < epsilon:
            action = random.randrange(actions)
        else:
            with torch.no_grad():
                action = int(online(pixels(obs[None])).argmax(1))
        after, reward, terminated, truncated, _ = env.step(action)
        after, score = np.asarray(after), score + float(reward)
        replay.append((obs, action, float(reward), terminated, after))
        over = terminated or truncated
        obs = np.asarray(env.reset()[0]) if over else after
        if len(replay) >= start:
            before, taken, rewards, ended, successors = map(
                np.stack, zip(*random.sample(replay, BATCH), strict=True)
            )
            q = online(pixels(before)).gather(1, tensor(taken)[:, None])[:, 0]
            with torch.no_grad():
                best = target(pixels(successors)).max(1).values
                wanted = tensor(rewards).float() + DISCOUNT * best * ~tensor(ended)
            optimizer.zero_grad()
            nn.functional.mse_loss(q, wanted).backward()
            optimizer.step()
            if step % SYNC == 0:
                target.load_state_dict(online.state_dict())
        yield step, score if over else None
        score = 0.0 if over else score
