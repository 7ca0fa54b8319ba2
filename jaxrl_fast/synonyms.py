"""Names of settings in other libraries, for the error about an unknown setting."""

from __future__ import annotations

NAMES = {  # {ours: theirs in Stable-Baselines3, CleanRL, PureJaxRL, rejax, Stoix or brax}
    "discount": ("gamma", "discounting"),
    "learning_rate": ("lr", "actor_lr", "policy_lr", "q_lr"),
    "anneal_learning_rate": ("anneal_lr", "lr_linear_decay"),
    "gae_lambda": ("lam", "gae_lam"),
    "return_lambda": ("lambda", "lambda_"),
    "clip_ratio": ("clip_range", "clip_eps", "clip_coef", "clipping_epsilon"),
    "entropy_coefficient": ("ent_coef", "entropy_cost"),
    "value_coefficient": ("vf_coef", "vf_loss_coefficient"),
    "max_grad_norm": ("max_gradient_norm",),
    "num_envs": ("n_envs", "total_num_envs"),
    "num_steps": ("n_steps", "rollout_length", "unroll_length", "train_freq", "train_frequency"),
    "num_epochs": ("n_epochs", "update_epochs", "epochs", "num_updates_per_batch"),
    "num_minibatches": ("n_minibatches",),
    "updates_per_iteration": ("gradient_steps", "grad_updates_per_step"),
    "buffer_size": ("replay_size", "max_replay_size"),
    "learning_starts": ("fill_buffer", "min_replay_size", "warmup_steps"),
    "target_tau": ("tau", "polyak"),
    "target_period": ("target_update_interval", "target_network_frequency", "target_update_freq"),
    "epsilon_start": ("exploration_initial_eps", "start_e", "eps_start"),
    "epsilon_end": ("exploration_final_eps", "end_e", "eps_end", "eps_finish"),
    "epsilon_fraction": ("exploration_fraction",),
    "hidden": ("net_arch", "policy_kwargs", "hidden_sizes", "hidden_layer_sizes"),
    "normalize_observations": ("norm_obs",),
    "normalize_reward": ("norm_reward",),
    "reward_scale": ("reward_scaling",),
    "total_steps": ("total_timesteps", "num_timesteps"),
    "seeds": ("num_seeds", "n_seeds"),
    "eval_every": ("eval_freq",),
    "eval_episodes": ("n_eval_episodes", "num_eval_episodes"),
    "log_every": ("log_interval",),
    "target_return": ("reward_threshold",),
    "video_every": ("capture_video", "record_video"),
    "hooks": ("callback", "callbacks", "eval_callback", "progress_fn"),
    "progress": ("verbose", "progress_bar"),
    "tensorboard": ("tensorboard_log", "use_tb"),
    "wandb": ("track", "wandb_project_name"),
}


def ours(name: str) -> set[str]:
    """Return our names for a setting of another library, in lower case."""
    return {known for known, others in NAMES.items() if name in others}
