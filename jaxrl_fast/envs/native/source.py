"""The native environments by name; a new one is a file here and a line."""

from jaxrl_fast.envs.tables import table

_HERE = __name__.rpartition(".")[0]
SOURCE = table("", {
    "CartPole-v1": f"{_HERE}.cartpole:CartPole",
    "Acrobot-v1": f"{_HERE}.acrobot:Acrobot",
    "MountainCar-v0": f"{_HERE}.mountain_car:MountainCar",
    "MountainCarContinuous-v0": f"{_HERE}.mountain_car:MountainCarContinuous",
    "Pendulum-v1": f"{_HERE}.pendulum:Pendulum",
    "Breakout-MinAtar": f"{_HERE}.breakout:Breakout",
})  # fmt: skip
