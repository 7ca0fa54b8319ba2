"""Facts of machines that are well, and of each thing that may be wrong, for the doctor's tests."""

from __future__ import annotations

import dataclasses

from jaxrl_fast.doctor import known
from jaxrl_fast.doctor.facts import Backend, Cache, Card, Facts, Limits, Machine, Unmet

GiB = 2**30
HEALTHY = Facts(
    versions={"jax": "0.11.2", "jaxlib": "0.11.2", "python": "3.12.3"},
    machine=Machine(cores=1, all_cores=8, load=0.4, memory_bytes=16 * GiB, available_bytes=9 * GiB),
    backend=Backend("cpu", ("cpu",), memory_bytes=16 * GiB),
    cache=Cache("/cache", 3, 1000, free_bytes=50 * GiB, requests=4, hits=3, returned=True),
    limits=Limits("cpu", {"float32": 1e11}, 1e10, 1e-5, 2e-5, 1e-6),
)
CARD = Card("H100", "570.1", 0.1 * GiB, 80 * GiB, 0.0)
FULL = dataclasses.replace(CARD, used_bytes=50 * GiB)
COMMAND_BUFFER = known.MISSING_FLAGS[0].flag


def facts(base: Facts = HEALTHY, **parts) -> Facts:
    """Facts with other values: a part is replaced, or a dict of some of its fields."""
    make = lambda name, new: (
        dataclasses.replace(getattr(base, name), **new)
        if isinstance(new, dict) and dataclasses.is_dataclass(getattr(base, name)) else new
    )  # fmt: skip
    return dataclasses.replace(base, **{name: make(name, new) for name, new in parts.items()})


GPU = facts(
    backend=Backend("gpu", ("NVIDIA H100",), memory_bytes=60 * GiB),
    machine={"nvidia": True, "cards": (CARD,)},
    limits={"products": {"float32": 5e13, "tf32": 4e14, "bf16": 8e14}},
    flags={COMMAND_BUFFER: "FUSION,WHILE"},
)
TEN = {"jax": "0.10.2", "jaxlib": "0.10.2"}
CUDA = TEN | {"jax-cuda12-plugin": "0.10.2"}
OFF = {known.HANG_FLAG: "false"}
CASES = {  # name of the advice: facts with it, the same without it, its level, a part of its line
    "backend": (facts(backend=Backend(error="AssertionError", chosen="cuda"), limits=None), HEALTHY,
                "wrong", "unset JAX_PLATFORMS"),
    "unknown_flags": (facts(backend={"unknown_flags": ("--x",)}, flags={"--x": "1", "--y": "2"}),
                      facts(flags={"--y": "2"}), "wrong", "export XLA_FLAGS='--y=2'"),
    "idle_card": (facts(machine={"nvidia": True}), facts(machine={"nvidia": False}), "wrong",
                  "pip install 'jax[cuda12]=="),
    "card_left_out": (facts(machine={"nvidia": True}, backend={"chosen": "cpu"}),
                      facts(backend={"chosen": "cpu"}), "faster", "unset JAX_PLATFORMS"),
    "no_card": (facts(versions=CUDA), facts(versions=CUDA, machine={"nvidia": True}), "note",
                "--gpus all"),
    "requirements": (facts(unmet=(Unmet("gymnax", "jax", "<0.12,>=0.6", "0.12.0"),)), HEALTHY,
                     "wrong", "pip install 'jax<0.12,>=0.6'"),
    "plugin": (facts(versions=TEN | {"jax-cuda12-plugin": "0.10.1"}),
               facts(versions=CUDA), "wrong",
               "pip install 'jax[cuda12]==0.10.2'"),
    "cache_writable": (facts(cache={"error": "Permission denied"}), HEALTHY, "wrong",
                       "export JAXRL_FAST_CACHE="),
    "cache_returns": (facts(cache={"returned": False}), HEALTHY, "wrong", "rm -r /cache"),
    "cache_off": (facts(cache=Cache()), HEALTHY, "faster", "unset JAXRL_FAST_CACHE"),
    "cache_full": (facts(cache={"free_bytes": GiB / 2}), HEALTHY, "note", "-delete"),
    "busy_cores": (facts(machine={"load": 12.0}), facts(machine={"load": 7.0}), "faster", "ps -eo"),
    "busy_card": (facts(GPU, machine={"cards": (FULL,)}), GPU, "wrong",
                  "export XLA_CLIENT_MEM_FRACTION=0.34"),
    "quota": (facts(machine={"cores": 8, "quota": 2.0}), facts(machine={"cores": 8, "quota": 8.0}),
              "faster", "export NPROC=2"),
    "few_threads": (facts(machine={"cores": 8}, variables={"NPROC": "2"}),
                    facts(machine={"cores": 8}, variables={"NPROC": "8"}), "faster", "unset NPROC"),
    "memory": (facts(machine={"available_bytes": GiB}), HEALTHY, "note", "ps -eo rss"),
    "seeds": (facts(machine={"cores": 4}), HEALTHY, "faster", "--seeds 4"),
    "precision": (GPU, facts(GPU, limits={"products": {"float32": 5e13, "tf32": 6e13}}), "faster",
                  "--algo.precision bf16"),
    "jaxlib <0.11 wrong": (facts(versions=TEN, flags={known.HANG_FLAG: "true"}),
                           facts(versions=TEN, flags=OFF), "wrong", f"{known.HANG_FLAG}=false"),
    "jaxlib <0.11 note": (facts(versions=TEN, flags=OFF), HEALTHY, "note", "'jax>=0.11"),
    "jax >=0.11 note": (HEALTHY, facts(versions=TEN), "note", "jnp.empty"),
    "brax ==0.14.* note": (facts(versions={"brax": "0.14.2"}), facts(versions={"brax": "0.15.0"}),
                           "note", "jaxrl-fast list"),
    COMMAND_BUFFER + " missing": (facts(GPU, flags={}), GPU, "faster", "WHILE"),
}  # fmt: skip
