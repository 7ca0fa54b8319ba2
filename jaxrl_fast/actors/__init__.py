"""Training on environments on the host: threads and processes step them for the learner."""
