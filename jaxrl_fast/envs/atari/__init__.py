"""The Atari 2600 as one data-oriented step over lanes of int32 state."""
