"""Memory of a link and its local broker while they pass a large backlog of RabbitMQ.

Invariant: the local broker's memory of a message ends a minute after its acknowledgement is proven
(L10), and a link holds its window (L19), so neither grows with the backlog: from two of those
minutes on, memory is compared with its peak before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import cpu
import psutil
import rabbitmq_sides
from harness import Figures

from ackq import limits
from ackq.client import Admin

LIMIT_S: Final = 6 * 3600.0
# The memory of a minute's messages depends on the rate, which varies.
_MOST_GROWTH: Final = 1.25
_SETTLED_IN_S: Final = 2.0 * limits.LINK_ACK_GRACE_S
_SAMPLE_S: Final = 1.0
_SAY_S: Final = 15.0
# Publishes that are sent together, and the most that are unconfirmed.
_TOGETHER: Final = 500
_UNDER_WAY: Final = 20_000
_ID_DIGITS: Final = 20
QUEUE_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "lazy": {"x-queue-mode": "lazy"},
    "quorum": {"x-queue-type": "quorum"},
}


def measure(
    endpoint: str,
    here: str,
    count: int,
    run: Callable[[], AbstractContextManager[int]],
    title: str,
) -> Figures:
    """Passes a backlog, and samples memory until all is settled and RabbitMQ's queue is empty.

    Args:
        endpoint: The local broker.
        here: The local broker's queue.
        count: Number of messages in the backlog.
        run: Runs the link and a consumer; yields the link's process id.
        title: Title of the result.
    """
    found: dict[str, list[float]] = {"edge": [], "link": []}
    times: list[float] = []
    began = said = time.monotonic()
    with run() as link, Admin(endpoint) as admin:
        processes = {"edge": psutil.Process(cpu.SERVERS[cpu.ACKQ]), "link": psutil.Process(link)}
        accepted = 0
        while accepted < count:
            accepted = admin.queue(here).accepted
            now = time.monotonic()
            assert now - began < LIMIT_S, f"{accepted:,} of {count:,} in time"
            times.append(now - began)
            for name, process in processes.items():
                found[name].append(process.memory_info().rss / 2**20)
            if now - said >= _SAY_S or accepted == count:
                said = now
                print(
                    f"{accepted:,} of {count:,} settled after {now - began:.0f} s; MiB of"
                    f" edge {found['edge'][-1]:.0f}, link {found['link'][-1]:.0f}",
                    flush=True,
                )
            time.sleep(_SAMPLE_S)
    figures = Figures(f"{title}, {count / times[-1]:,.0f}/s", "MiB")
    for name, sizes in found.items():
        figures.add(
            {f"{name}, first": sizes[0], f"{name}, most": max(sizes), f"{name}, last": sizes[-1]}
        )
        early = [size for at, size in zip(times, sizes, strict=True) if at < _SETTLED_IN_S]
        late = sizes[len(early) :]
        if late:
            figures.add({f"{name}, most after {_SETTLED_IN_S:.0f} s": max(late)})
            figures.passed &= max(late) <= _MOST_GROWTH * max(early)
    return figures


@contextlib.contextmanager
def backlog(port: int, kind: str, count: int, size: int) -> Iterator[str]:
    """A queue of one of `QUEUE_KINDS` with persistent messages, each with an id."""
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
    queue = f"backlog-{kind}"
    with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=dict(QUEUE_KINDS[kind]))
        began = time.monotonic()
        _publish(connection, channel, queue, count, size)
        took = time.monotonic() - began
        print(f"{queue}: {count:,} published in {took:.0f} s, {count / took:,.0f}/s", flush=True)
    yield queue


def _publish(connection: Any, channel: Any, queue: str, count: int, size: int) -> None:
    """Publishes with confirms, by frames that are made once: only a message's id changes."""
    from pika import frame, spec

    confirms = rabbitmq_sides.Confirms(channel._impl)
    number = channel.channel_number
    mark = b"#" * _ID_DIGITS
    properties = spec.BasicProperties(delivery_mode=2, message_id=mark.decode())
    parts = [
        frame.Method(number, spec.Basic.Publish(routing_key=queue)),
        frame.Header(number, size, properties),
        frame.Body(number, bytes(size)),
    ]
    before, _, after = b"".join(part.marshal() for part in parts).partition(mark)
    said = time.monotonic()
    for first in range(0, count, _TOGETHER):
        together = range(first, min(first + _TOGETHER, count))
        confirms.expect(len(together))
        data = b"".join(before + b"%020d" % each + after for each in together)
        connection._impl._output_marshaled_frames([data])
        connection.process_data_events(0)
        while confirms.missing > _UNDER_WAY:
            connection.process_data_events(0.01)
        if time.monotonic() - said >= _SAY_S:
            said = time.monotonic()
            print(f"{queue}: {first:,} of {count:,} published", flush=True)
    while confirms.missing:
        connection.process_data_events(0.01)
