"""The pure state machine of the broker: `Core` decides commands and applies records.

No clock, no I/O, no threads, no chance.

`core` has the two tables: which function decides each command, and which applies each record. The
rooms, each importing only those below it:

- `snapshot`, `queries`, `lifecycle`: the state as bytes, reads, cleanup at start and by retention
- `publishing` (P, K3), `consuming` (C), `sessions` (S): independent of each other
- `queues` (Q, C13, C14): topology, routing, bounds, dead letters, timers; `history` (Q8)
- `checks`: validation that several rooms share
- `state`: the data that records fold into
- `commands`: the interface to the service, with the replies
- `records`: what the journal holds
- `record_fields`, `columns`: the types of fields, and compact columns of positions
"""

from ackq_broker.core.core import Core

__all__ = ["Core"]
