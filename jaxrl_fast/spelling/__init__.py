"""The name that a user may have meant: other libraries' words for ours, and near spellings."""
