"""Where do demonstrations come from? Files of our own, and a user's historian export.

`open.open_demonstrations` reads either kind. Inside, data walk one way: `load` (cells of a file) ->
`episodes` (rows in order of time) -> `faults` (limits, frozen sensors) -> `grid` (even samples) ->
`historian` (trajectories, and an `account` of every row). `parquet` is our own format; `truth` the
modes of simulated demonstrations, in a file apart, which nothing that learns ever opens.
"""
