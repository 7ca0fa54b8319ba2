"""The probes by name; a new one is a class here and a line."""

from jaxrl_fast.envs.tables import table

_HERE = __name__.rpartition(".")[0]
SOURCE = table("", {
    "probe/constant-reward": f"{_HERE}.control:ConstantReward",
    "probe/reward-at-end": f"{_HERE}.control:RewardAtEnd",
    "probe/two-step-credit": f"{_HERE}.control:TwoStepCredit",
    "probe/action-reward": f"{_HERE}.control:ActionReward",
    "probe/truncated-only": f"{_HERE}.control:TruncatedOnly",
    "probe/reward-at-cut": f"{_HERE}.control:RewardAtCut",
    "probe/named-action": f"{_HERE}.control:NamedAction",
    "probe/continuous": f"{_HERE}.spaces:Continuous",
    "probe/multi-discrete": f"{_HERE}.spaces:MultiDiscreteAction",
    "probe/masked": f"{_HERE}.spaces:Masked",
    "probe/dict": f"{_HERE}.spaces:DictObservation",
})  # fmt: skip
