"""Export environments to Gymnasium, for use with other libraries."""
