"""Experience from elsewhere: datasets, saved memories, mixed and prefilled memories."""
