"""Our programs beside other libraries', on one machine: `jaxrl-fast bench`.

`race` lets programs take turns. `ours` and `theirs` hold both sides at the peers' settings, `peers`
loads their code from a checkout or an installation, `rows` are the comparisons, `report` shows
them. No other library's code is here.
"""
