"""Deterministic simulation: the real broker in one process, where a seed decides everything.

`kernel` schedules, `threads`, `disk`, `system` and `network` are the machine below the product,
`process` its lives, `faults` what befalls it, `world` all of them together; `elsewhere` is the
other broker of links, and `link_machine` the machine below their processes. `clients` live there,
the `oracle` judges, `scenario` puts both into a world, `search` runs many. `bugs` are planted, to
see that they are found.
"""
