"""Host environments: Gymnasium, EnvPool, the Arcade Learning Environment, a user's."""
