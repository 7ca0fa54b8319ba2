"""Many runs: grids and draws of settings, searches, their results side by side, and runs compared with runs."""
