"""Time, memory, energy and money of a run before it runs: `jaxrl-fast forecast`.

`calibrate` trains the run for some seconds, `here` scales it to the whole run. For other devices
`work` counts the operations of the traced program, `sheets` holds the devices and `elsewhere` the
model. `amounts` is what both forecast, `report` prints and draws it.
"""
