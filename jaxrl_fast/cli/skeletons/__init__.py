"""Files that `jaxrl-fast new` copies: `skeleton` and `Skeleton` become the new name."""
