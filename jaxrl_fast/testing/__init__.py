"""What a user needs to test an environment of their own: `check_env(env)`."""

from jaxrl_fast.testing.conformance import Report, check_env

__all__ = ["Report", "check_env"]
