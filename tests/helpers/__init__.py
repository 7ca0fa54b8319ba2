"""What tests of several folders share: tiny runs, environments that know what they must return,
small distributions."""
