"""Experience from elsewhere: datasets, folders that hold a memory, memories that are mixed or begin full."""
