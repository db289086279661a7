"""Queue limits from RabbitMQ's HTTP API, read from a server that answers as RabbitMQ does."""

import asyncio
import json

import pytest

from ackq.errors import InvalidArgumentError, NotFoundError, PreconditionFailedError
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
NO_POLICY = {"effective_policy_definition": {}}
DEAD_LETTERS = {"arguments": {"x-dead-letter-exchange": "d"}}
DEAD_LETTERS |= {"effective_policy_definition": {"consumer-timeout": 500}}


@pytest.mark.parametrize(
    ("found", "limit", "timeout_s", "dead_letters"),
    [
        (QUORUM, 3, None, True),
        ({"type": "classic", "arguments": {}, **NO_POLICY}, None, None, False),
        ({"type": "quorum", "arguments": {"x-delivery-limit": -1}, **NO_POLICY}, 0, None, False),
        ({"arguments": {"x-consumer-timeout": 90_000}, **NO_POLICY}, None, 90, False),
        ({"effective_policy_definition": []}, None, None, False),
        (DEAD_LETTERS, None, 0.5, True),
        ({"arguments": {"x-delivery-limit": 5}}, 5, None, None),
        ({"arguments": {"x-dead-letter-exchange": ""}}, None, None, True),
    ],
)
def test_what_is_read(found, limit, timeout_s, dead_letters):
    """L14: of a limit in argument and policy the smaller one applies.

    Without statistics the API tells no policy: what one may give is not known, with a warning.
    """
    limits = limits_of(found)
    told = "effective_policy_definition" in found
    assert ["tells no policy" in each for each in limits.warnings] == ([] if told else [True])
    assert (limits.delivery_limit, limits.consumer_timeout_s) == (limit, timeout_s)
    assert (limits.dead_letters, limits.kind) == (dead_letters, found.get("type", ""))


@pytest.mark.parametrize("by", ["arguments", "effective_policy_definition"])
def test_a_queue_that_expires(by):
    """L14: it is warned of, as it has no consumer while the link's window is full."""
    found = {**NO_POLICY, by: {"x-expires" if by == "arguments" else "expires": 8000}}
    (warning,) = limits_of(found).warnings
    assert "no consumer for 8 s" in warning


ADDRESS = BrokerAddress("amqp://h/a%2Fb", "link", "hidden")


async def answered(answer):
    """The limits by an API that gives this answer, to one request."""
    asked = []

    async def serve(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        try:
            return await Management(f"http://127.0.0.1:{port}/").queue_limits(ADDRESS, "orders/1")
        finally:
            assert len(asked) == 1


def http(status, body, *headers):
    return b"\r\n".join([b"HTTP/1.0 %d X" % status, *headers, b"", body])


@pytest.mark.parametrize(
    ("answer", "refusal", "told"),
    [
        (http(404, b""), NotFoundError, "404"),
        (http(200, b'{"auto_delete": true}'), PreconditionFailedError, "an auto-delete queue"),
        (http(500, b""), type(None), "500"),
        (http(200, b"["), type(None), "Expecting"),
        (http(200, b"[" * 100_000), type(None), "recursion"),
        (http(200, b"{", b"Content-Length: 9"), type(None), "IncompleteRead"),
        (b"AMQP\0\0\x09\x01", type(None), "AMQP"),
        (
            http(302, b"", b"Location: /there/api/queues/a%2Fb/orders%2F1"),
            InvalidArgumentError,
            "/there: name that",
        ),
    ],
)
async def test_other_answers(answer, refusal, told):
    """L14: no queue, one that ends with its consumer, and a redirect are refused, not cuts.

    No message has the password, and no second request goes out with it.
    """
    assert (await answered(http(200, b'{"type": "classic"}'))).kind == "classic"
    with pytest.raises(CutError, match=told) as raised:
        await answered(answer)
    assert type(raised.value.refusal) is refusal
    assert "hidden" not in str(raised.value)


OWN = {"dead-letter-exchange": "d/e", "dead-letter-routing-key": "k"}
DEFAULT = {"dead-letter-exchange": "", "dead-letter-routing-key": "d/e"}
THERE, LIST = "/api/exchanges/a%2Fb/d%2Fe", "/api/exchanges/a%2Fb/d%2Fe/bindings/source"
STAYS = {**OWN, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
HEAD = {**STAYS, "overflow": "drop-head"}
TO_ITSELF = b'[{"destination": "q", "destination_type": "queue"}]'
NO_EXCHANGE = {THERE: (404, b"")}


@pytest.mark.parametrize(
    ("policy", "answers", "flaw"),
    [
        (OWN, {THERE: (200, b"{}"), LIST: (200, b"[{}]")}, ""),
        (OWN, {THERE: (200, b"{}"), LIST: (200, b"[]")}, "'d/e' of the queue is bound to no"),
        (OWN, {THERE: (200, b'{"policy": "alternate"}')}, ""),
        (OWN, {THERE: (200, b'{"arguments": {"alternate-exchange": "f"}}')}, ""),
        (OWN, {THERE: (404, b"")}, "exchange 'd/e' of the queue does not exist"),
        (DEFAULT, {"/api/queues/a%2Fb/d%2Fe": (200, b"{}")}, ""),
        (
            DEFAULT,
            {"/api/queues/a%2Fb/d%2Fe": (404, b"")},
            "queue 'd/e' of the queue does not exist",
        ),
        ({**DEFAULT, "dead-letter-routing-key": "q"}, {}, "into itself"),
        (OWN, {THERE: (200, b"{}"), LIST: (200, TO_ITSELF)}, "bound to no other"),
    ],
)
async def test_dead_letters_that_are_dropped(policy, answers, flaw):
    """L14: where they cannot be routed, the queue keeps none, and the link warns."""
    found = await looked(policy, answers)
    assert found.dead_letters is not bool(flaw)
    assert [flaw in each for each in found.warnings] == ([True] if flaw else [])


async def test_dead_letters_by_their_own_keys():
    """L14: whether one is kept depends on its routing key: it is not known, and warned of."""
    found = await looked({"dead-letter-exchange": ""}, {})
    assert found.dead_letters is None
    assert ["names no other queue" in each for each in found.warnings] == [True]


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ({THERE: (401, b"")}, None),
        ({THERE: (200, b"{}"), LIST: (403, b"")}, None),
        ({THERE: (500, b"")}, "status 500"),
        ({THERE: (200, b"{}"), LIST: (500, b"")}, "status 500"),
        ({THERE: (200, b"[]")}, "does not describe"),
    ],
)
async def test_a_dead_letter_exchange_that_cannot_be_looked_at(answers, outcome):
    """L14, L28: it is not known to keep dead letters; a look that failed is none."""
    if outcome is None:
        found = await looked(OWN, answers)
        assert (found.dead_letters, found.warnings) == (None, ())
    else:
        with pytest.raises(CutError, match=outcome) as raised:
            await looked(OWN, answers)
        assert raised.value.refusal is None


@pytest.mark.parametrize(
    ("kind", "policy", "arguments", "kept"),
    [
        ("quorum", STAYS, {}, True),
        ("quorum", HEAD, {}, False),
        ("quorum", HEAD, {"x-overflow": "reject-publish"}, False),
        ("quorum", {**OWN, "dead-letter-strategy": "at-least-once"}, {}, False),
        ("classic", STAYS, {}, False),
    ],
)
async def test_dead_letters_that_stay_in_the_queue(kind, policy, arguments, kept):
    """L14: what no exchange takes stays in a quorum queue that refuses publishers when full."""
    found = await looked(policy, {} if kept else NO_EXCHANGE, type=kind, arguments=arguments)
    assert (found.dead_letters, len(found.warnings)) == (kept, not kept)


async def looked(policy, answers, **more):
    """The limits of a queue with this policy, by an API that gives each answer once."""
    queue = json.dumps({"effective_policy_definition": policy, **more}).encode()
    left = {"/api/queues/a%2Fb/q": (200, queue), **answers}

    async def serve(reader, writer):
        asked = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        writer.write(http(*left.pop(asked.decode())))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await Management(f"http://127.0.0.1:{port}").queue_limits(ADDRESS, "q")
    assert not left
    return found


SINGLE = {"type": "quorum", "arguments": {"x-single-active-consumer": True}, **NO_POLICY}


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


def test_a_look_that_tells_nothing():
    """L14: the limit of the version, for a queue that redelivered messages show to be a quorum
    queue, is for one of which no look has told a limit.
    """
    seen = Seen(version=(4, 2))
    source = QueueSource(ADDRESS, "orders", "link", Limits(1, 1), seen=seen)
    refused = QueueLimits(partial=True)
    argued = {"x-delivery-limit": 5, "x-single-active-consumer": True}
    told = source.limits_of(limits_of({"type": "quorum", "arguments": argued}))
    unknown = source.limits_of(refused)
    seen.quorum = True
    found = told.beside(source.limits_of(refused))
    assert (found.delivery_limit, found.single_active) == (5, True)
    held, limits = unknown, []
    for seen.version in ((3, 13), (4, 2)):  # its nodes are updated while the link runs
        held = held.beside(source.limits_of(refused))
        limits.append(held.delivery_limit)
    assert (unknown.delivery_limit, limits) == (None, [0, 20])
