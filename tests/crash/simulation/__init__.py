"""Deterministic simulation: the real broker in one process, in a schedule chosen by a seed.

`kernel` is the scheduler; `threads`, `disk`, `system` and `network` are the machine below the
product; `process` runs the broker's process lifetimes; `faults` injects faults; `world` combines
them. `elsewhere` is the remote broker of links, and `link_machine` the machine below link
processes. The `clients` run in a world, the `oracle` judges the history, `scenario` puts both into
a world, and `search` runs many worlds. `bugs` are planted to verify that the simulation finds them.
"""
