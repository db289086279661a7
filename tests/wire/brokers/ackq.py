"""An ackq broker under test: its administration, its process, and connections to it."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ackq.client import Admin
from ackq.errors import AckqError, BrokerUnavailableError, status_of
from ackq_broker.embedding import EmbeddedBroker
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.raw_client import Client
from tests.fakes.relay import Relay
from tests.wire.brokers.ackq_channel import AckqChannel
from tests.wire.brokers.ackq_publisher import AckqPublisher
from tests.wire.brokers.ackq_stream import CONDITIONS
from tests.wire.brokers.dialect import Connection, Counts, Dialect, Mode, Properties, Refused

T = TypeVar("T")

ENDPOINT_VARIABLE = "ACKQ_CONFORMANCE_ENDPOINT"
CRASH_VARIABLE = "ACKQ_CONFORMANCE_CRASH"


@contextlib.contextmanager
def target(folder: Path) -> Iterator[AckqDialect]:
    """Yields the broker that the environment names, else a new broker process."""
    endpoint = os.environ.get(ENDPOINT_VARIABLE)
    if endpoint is not None:
        yield AckqDialect(endpoint)
        return
    faults = folder / "faults"
    faults.mkdir()
    with EmbeddedBroker(folder / "data", env=machine.with_faults(faults)) as process:
        yield AckqDialect(process.endpoint, process, faults)


class AckqDialect(Dialect):
    """An ackq broker under test.

    Args:
        endpoint: `host:port`.
        process: The broker, if the suite runs it.
        faults: The folder in which that process looks for simulated machine faults.
    """

    name = "ackq"
    short_heartbeat: dict[str, int] = {}  # noqa: RUF012 - its heartbeat is not the client's choice

    def __init__(self, endpoint, process=None, faults=None) -> None:
        self.endpoint = endpoint
        self.process = process
        self._faults = faults
        self.admin = Admin(endpoint)

    def connect(self) -> AckqConnection:
        """Opens a new connection, through its own relay."""
        return AckqConnection(Relay(self.endpoint))

    def declare(self, queue: str, properties: Properties) -> None:
        self._told(lambda: self.admin.declare_queue(queue, **vars(properties)))

    def delete(self, queue: str, *, force: bool = False, if_empty: bool = False) -> int:
        how = {"force": force, "if_empty": if_empty}
        return self._told(lambda: self.admin.delete_queue(queue, **how)).ready

    def purge(self, queue: str) -> int:
        return self._told(lambda: self.admin.purge_queue(queue))

    def counts(self, queue: str) -> Counts:
        """The ready messages and consumers of a queue."""
        info = self._told(lambda: self.admin.queue(queue))
        return Counts(info.ready, info.consumers)

    def declare_exchange(self, exchange: str, kind: str, *, durable: bool = True) -> None:
        self._told(lambda: self.admin.declare_exchange(exchange, kind, durable=durable))

    def delete_exchange(self, exchange: str) -> None:
        self._told(lambda: self.admin.delete_exchange(exchange))

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        self._told(lambda: self.admin.bind(exchange, queue, key))

    def unbind(self, exchange: str, queue: str, key: str = "") -> None:
        self._told(lambda: self.admin.unbind(exchange, queue, key))

    def redrive(self, queue: str, **bounds: int | str) -> tuple[int, int]:
        """Redrives dead letters; returns how many moved and how many stay (Q6)."""
        moved = self._told(lambda: self.admin.redrive(queue, **bounds))
        return moved.messages, moved.left

    def crash(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.restart()
        elif command := os.environ.get(CRASH_VARIABLE):
            subprocess.run(shlex.split(command), check=True)
        else:
            pytest.skip(f"{CRASH_VARIABLE} has no command that kills and restarts the target")
        eventually("the restarted broker", self._serves)

    def disk_alarm(self, *, on: bool) -> None:
        fault = self._fault("full-disk")
        if on:
            fault.touch()
        else:
            fault.unlink(missing_ok=True)

    def set_clock(self, ahead_s: int) -> None:
        """Sets the broker's wall clock ahead by this time (Q8)."""
        fault = self._fault("clock")
        unfinished = fault.with_suffix(".new")
        unfinished.write_text(str(ahead_s))
        unfinished.replace(fault)

    def _fault(self, name: str) -> Path:
        if self._faults is None:
            pytest.skip("the machine of a broker elsewhere is not the suite's to tamper with")
        return self._faults / name

    def _serves(self) -> bool:
        try:
            self.admin.info()
        except BrokerUnavailableError:
            return False
        return True

    def _told(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except AckqError as error:
            status = status_of(error)
            raise Refused(CONDITIONS.get(status, "other"), error.code, str(error), {}) from error


class AckqConnection(Connection):
    """A gRPC channel through its own relay."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self._client = Client(relay.endpoint)

    def publisher(self, mode: Mode = Mode.CONFIRM, **options: Any) -> AckqPublisher:
        """Opens a publisher; with an identity, a new stream of that publisher."""
        publisher = AckqPublisher(self._client.publishing, mode, **options)
        publisher.answers.wait(lambda: publisher.opened)
        return publisher

    def channel(self, channel_id: bytes | None = None, **options: Any) -> AckqChannel:
        """Opens a channel; with an id, resumes that channel after a cut (C11)."""
        opened = AckqChannel(self._client.consuming, channel_id, **options)
        opened.log.wait(lambda: opened.opened)
        return opened

    def close(self) -> None:
        self._client.channel.close()
        self.relay.close()
