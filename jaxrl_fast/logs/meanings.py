"""The meanings of the log's columns, a sentence each, for reports; docs/algorithms has more."""

from __future__ import annotations

MEANINGS = {
    "episode_return": "Mean return of the episodes that ended within the row, with the actions of "
                      "training.",
    "episode_length": "Mean number of steps of the episodes that ended within the row.",
    "eval_return": "Mean return of whole episodes with frozen parameters, greedy unless eval_mode "
                   "says otherwise.",
    "eval_length": "Mean number of steps of an evaluation's episodes.",
    "eval_episodes": "Episodes of the evaluation.",
    "policy_lag": "Updates by which the acting policy was older than the learner.",
    "parent": "PBT: the member whose agent this member goes on with, possibly its own.",
    "kept": "Successive halving: 1 for a member that goes on, 0 for one that was dropped.",
    "steps_per_second": "Environment steps a second of all members together.",
    "policy_loss": "Loss of the policy. Only its gradient matters; it hovers near 0 as advantages "
                   "are normalised.",
    "value_loss": "Squared error of the value function, before its coefficient. Grows with the "
                  "scale of returns.",
    "entropy": "Entropy of the policy in nats. A fall in the first rows means that exploration "
               "ended too early.",
    "policy_std": "Mean standard deviation of the policy before the tanh. It falls as the policy "
                  "becomes sure.",
    "approx_kl": "Estimate of KL(old policy, new policy). Above about 0.05, updates are too large.",
    "clip_fraction": "Share of rows whose probability ratio was clipped; usually 0.05 to 0.3.",
    "rho": "Mean importance ratio before clipping; far from 1: a few rows have huge ratios.",
    "rho_clipped": "Share of rows whose importance ratio was clipped.",
    "loss": "Loss of the update. No measure of progress: it grows with returns, and its targets "
            "move.",
    "q_value": "Mean action value over the batches. Above any possible return: overestimation.",
    "td_error": "Mean distance between action values and their targets.",
    "critic_loss": "Loss of the critics. No measure of progress: it grows with returns, and its "
                   "targets move.",
    "actor_loss": "Loss of the actor, about minus the value of its actions.",
    "temperature": "Weight of the entropy; with autotune it settles where the entropy meets its "
                   "target.",
    "grad_norm": "Norm of the gradient before clipping.",
    "candidate_return": "Mean return of the candidates that were tried in the row.",
    "best_candidate_return": "The best return of a candidate in the row.",
    "candidate_length": "Mean number of steps of the candidates' episodes.",
}


def meaning(name: str) -> str:
    """Return the sentence for a column; a column that is not ours says where it may come from."""
    if name in MEANINGS:
        return MEANINGS[name]
    if name.startswith("time_"):
        return f"Share of the wall clock spent on: {name[5:].replace('_', ' ')}."
    if name.startswith(("algo.", "env.")):
        return "A setting that the selection changes."
    if name.endswith("_end"):
        return (f"Mean of {name[:-4]}, as the environment reports it, over the steps that end an "
                "episode.")
    return "Reported by the environment (a mean over the steps), by the algorithm or by a hook."
