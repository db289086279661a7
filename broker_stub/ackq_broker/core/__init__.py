"""The pure state machine of the broker: `Core` decides commands and applies records.

No clock, no I/O, no threads, no chance.

Read `commands` for what can be asked, `records` for what is remembered (both on `values`, records
on `parts`), `state` and `queues` for what they fold into; then one module for each part:
`topology`, `publishers`, `publishing`, `transactions`, `staging`, `sessions`, `consuming` with
`settling`, `dead_letters` and `redriving`, `ticking`, `housekeeping`, and `queries`.
"""

from ackq_broker.core.core import Core

__all__ = ["Core"]
