"""The gRPC clients of this process: one per broker, made at first use.

Spark keeps a Python worker for many tasks and batches; a channel that lives as long as the process
costs its set-up once (40 to 90 ms). A worker is forked before this module is imported, so no gRPC
channel crosses a fork.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Final

# Its names import gRPC at first use: Spark's planning workers make no call and start faster.
from ackq import client
from ackq.client.connection.broker import Broker

if TYPE_CHECKING:
    from ackq.client import Admin, Session
    from ackq.errors import AckqError
    from ackq.info import SessionInfo

_log: Final = logging.getLogger("ackq.spark")
# A shorter wait before a retry is not logged.
_LOGGED_WAIT_S: Final = 1.0


@cache
def session(broker: Broker) -> Session:
    """The client of the sessions service."""
    return client.Session(broker, on_wait=_log_wait)


@cache
def admin(broker: Broker) -> Admin:
    """The client of the administration service."""
    return client.Admin(broker)


def wait_ready(broker: Broker) -> None:
    """Waits for the broker, up to `retry_ms`; then BrokerUnavailableError with the cause."""
    assert broker.retry_ms is not None, "an option of Spark is a bound"
    client.wait_ready(broker, broker.retry_ms / 1000)


def find_session(broker: Broker, name: str) -> SessionInfo:
    """A session as recorded by the broker; raises as `wait_ready`, or SessionNotFoundError."""
    wait_ready(broker)
    return admin(broker).session(name)


def messages_left(broker: Broker, session: str) -> int:
    """The messages in the queues of a session, in any state; raises as `find_session`."""
    queues = map(admin(broker).queue, find_session(broker, session).queues)
    return sum(each.ready + each.unacked + each.delayed + each.staged for each in queues)


def _log_wait(error: AckqError, wait_s: float) -> None:
    if wait_s >= _LOGGED_WAIT_S:
        _log.warning("%s Trying again in %.0f s.", error, wait_s)
