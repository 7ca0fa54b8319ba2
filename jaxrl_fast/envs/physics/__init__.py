"""Physics of brax and MuJoCo Playground: the common part, two adapters, randomisation."""
