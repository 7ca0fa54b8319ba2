"""Measure the gradient of convolutional torsos, ours against XLA's own convolution.

    python scripts/bench_conv.py --json conv.json

Rows: pictures of 42x42 (batch 256, as PPO on Pong), 84x84 (32 as DQN, 256 as PPO) and MinAtar's
    10x10 (1,024). "steps" are
pictures; each turn is a scan of gradient steps. On a CPU ours are matrix products
(`networks/layers.py`); elsewhere both sides are the same program, and the ratio says how steady the
machine is.
"""

from __future__ import annotations

import sys
from typing import Any

import bench_common as bench

WORKS = {  # side, channels, dense layer, batch, gradient steps a turn
    "small_256": (42, 4, 256, 256, 40),
    "nature_32": (84, 4, 512, 32, 40),
    "nature_256": (84, 4, 512, 256, 6),
    "minatar_1024": (10, 4, 128, 1024, 40),
}


def run(args, side, channels, dense, batch, count):
    bench.prepare()
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl_fast import networks
    from jaxrl_fast.networks import layers
    from jaxrl_fast.spaces import Box

    count = max(1, round(count * args.scale))
    space = Box(0, 255, (side, side, channels), np.uint8)
    torso: Any = networks.make_torso("cnn", space, (dense,), "relu")
    pictures = np.random.default_rng(0).integers(0, 256, (batch, *space.shape)).astype(np.uint8)
    params = torso.init(jax.random.key(0), jnp.asarray(pictures[:1]))

    def train(params, pictures):
        loss = lambda p: jnp.mean(jnp.square(torso.apply(p, pictures) - 1.0))
        step = lambda p, _: (jax.tree.map(lambda x, g: x - 1e-3 * g, p, jax.grad(loss)(p)), ())
        return jax.lax.scan(step, params, length=count)[0]

    def with_(convolve):
        def traced(*inputs):
            before, layers.convolve = layers.convolve, convolve
            try:
                return train(*inputs)
            finally:
                layers.convolve = before

        return lambda: traced

    inputs = lambda turn: (params, jnp.asarray(pictures))
    contestants = [
        bench.Contestant("jaxrl_fast", batch * count, with_(layers.convolve), inputs),
        bench.Contestant("XLA's convolution", batch * count, with_(layers.convolve_xla), inputs),
    ]
    return {"machine": bench.machine(), "notes": [], **bench.race(contestants, args.turns)}


def main(argv):
    rows = {name: lambda args, work=work: run(args, *work) for name, work in WORKS.items()}
    return bench.main(bench.parser(__doc__, rows).parse_args(argv), rows, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
