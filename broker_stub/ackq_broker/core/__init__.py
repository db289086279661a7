"""The pure state machine of the broker: `Core` decides commands and applies records.

No clock, no I/O, no threads, no chance.

`tables` says which function decides each command, and which applies each record. The rooms, each
importing only those below it:

- `snapshot`, `lifecycle`: the state as bytes, cleanup at start and by retention
- `views`: functions that read the state and change nothing
- `publishing` (P, K3), `consuming` (C), `sessions` (S), `links` (L): independent of each other
- `queues` (Q, C13, C14): topology, routing, bounds, dead letters, timers; `history` (Q8)
- `holders` (S3, L1): who holds a session or a link, and in which epoch
- `checks`: validation that several rooms share
- `state`: the data that records fold into
- `commands`: the interface to the engine and the services, with the replies
- `records`: what the journal holds
- `columns`: compact columns of positions
"""

from ackq_broker.core.core import Core

__all__ = ["Core"]
