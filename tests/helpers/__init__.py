"""Code that tests of several folders share: tiny runs, environments that know their own results,
small distributions."""
