"""Queue limits from RabbitMQ's HTTP API, read from a server that answers as RabbitMQ does."""

import asyncio

import pytest

from ackq.errors import NotFoundError
from ackq_link.adapter import CutError, Limits, QueueLimits
from ackq_link.amqp091.address import BrokerAddress
from ackq_link.amqp091.management import Management, limits_of
from ackq_link.amqp091.source import QueueSource
from ackq_link.amqp091.subscription import Seen

QUORUM = {
    "name": "orders",
    "type": "quorum",
    "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5},
    "effective_policy_definition": {"delivery-limit": 3, "dead-letter-exchange": ""},
}
DEAD_LETTERS = {"arguments": {"x-dead-letter-exchange": "d"}}
DEAD_LETTERS |= {"effective_policy_definition": {"consumer-timeout": 500}}


@pytest.mark.parametrize(
    ("found", "limit", "timeout_s", "dead_letters"),
    [
        (QUORUM, 3, None, True),
        ({"type": "classic", "arguments": {}}, None, None, False),
        ({"type": "quorum", "arguments": {"x-delivery-limit": -1}}, 0, None, False),
        ({"arguments": {"x-consumer-timeout": 90_000}}, None, 90, False),
        (DEAD_LETTERS, None, 0.5, True),
    ],
)
def test_what_is_read(found, limit, timeout_s, dead_letters):
    """L14: of a limit in argument and policy the smaller one applies."""
    limits = limits_of(found)
    assert (limits.delivery_limit, limits.consumer_timeout_s) == (limit, timeout_s)
    assert (limits.dead_letters, limits.kind) == (dead_letters, found.get("type", ""))


ADDRESS = BrokerAddress("amqp://h/a%2Fb", "link", "hidden")


async def answered(status, body):
    """The limits by an API that gives this answer."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 %d X\r\n\r\n%b" % (status, body))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await Management(f"http://127.0.0.1:{port}/").queue_limits(ADDRESS, "orders/1")


@pytest.mark.parametrize(
    ("status", "body", "refusal"),
    [(404, b"", NotFoundError), (500, b"", type(None)), (200, b"[", type(None))],
)
async def test_other_answers(status, body, refusal):
    """L14: a missing queue is refused, other errors are cuts; no message has the password."""
    assert (await answered(200, b'{"type": "classic"}')).kind == "classic"
    with pytest.raises(CutError) as raised:
        await answered(status, body)
    assert type(raised.value.refusal) is refusal
    assert "hidden" not in str(raised.value)


SINGLE = {"type": "quorum", "arguments": {"x-single-active-consumer": True}}


@pytest.mark.parametrize(
    ("version", "change", "told", "warned"),
    [
        ((4, 3, 5), {}, {}, True),
        ((4, 3, 6), {}, {}, False),
        ((), {}, {}, False),
        ((4, 3, 2), {"type": "classic"}, {}, False),
        ((4, 3, 2), {"effective_policy_definition": {"consumer-timeout": 9}}, {}, False),
        ((4, 3, 2), {}, {"consumer_timeout_s": 60.0}, False),
    ],
)
def test_single_active_consumers_by_version(version, change, told, warned):
    """L17: versions that stop such a queue for ever get a warning, every version a note."""
    window, told, seen = Limits(1, 1), QueueLimits(**told), Seen(False, version)
    source = QueueSource(ADDRESS, "orders", "link", window, told, seen=seen)
    found = source.limits_of(limits_of({**SINGLE, **change}))
    assert [text for text in found.notes if "another consumer or link waits" in text]
    assert len(found.warnings) == warned
    if warned:
        shown = ".".join(map(str, version))
        assert f"RabbitMQ {shown} stops" in found.warnings[0]
        assert "Give the queue a consumer-timeout" in found.warnings[0]
