"""Our environments for other libraries: as Gymnasium's, one or a vector."""
