"""Many runs: sweeps, searches, their results, and comparisons of runs."""
