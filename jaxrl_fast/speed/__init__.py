"""Search settings that change speed and not learning: `jaxrl-fast tune-speed`.

`trials` are runs of one setting each, compared bit by bit and in turns; `search` goes through
the settings, `picture` draws them. `engine.tuned` keeps what it finds.
"""
