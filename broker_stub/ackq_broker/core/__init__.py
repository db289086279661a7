"""The pure state machine of the broker: `Core` decides commands and applies records.

No clock, no I/O, no threads, no randomness.

`tables` maps each command to the function that decides it, and each record to the function that
applies it. The parts, each importing only those below it:

- `snapshot`, `lifecycle`: the state as bytes, cleanup at start and by retention
- `views`: functions that read the state and change nothing
- `publishing` (P, K3), `consuming` (C), `sessions` (S), `links` (L): independent of each other
- `queues` (Q, C13, C14): topology, routing, bounds, dead letters, timers; `history` (Q8)
- `holders` (S3, L1): the holders of sessions and links, and their epochs
- `checks`: validation that several parts share
- `state`: the data that records fold into
- `commands`: the interface to the engine and the services, with the replies
- `records`: the records of the journal
- `columns`: compact columns of positions
"""

from ackq_broker.core.core import Core

__all__ = ["Core"]
