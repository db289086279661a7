"""What a link learns of a stream and its consumer, and the origin keys of its messages."""

import asyncio

import pytest

from ackq_link.adapter import CutError, Limits
from ackq_link.jetstream import source as module
from ackq_link.jetstream.address import NatsAddress
from ackq_link.jetstream.source import StreamSource, limits_of, refusal, waits
from tests.fakes.clock import run
from tests.unit.link.jetstream.recorded import Connection

RUN = run

GOOD = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 1000}
S = 10**9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"durable_name": ""}, "not durable"),
        ({"headers_only": True}, "headers only"),
        ({"deliver_subject": "x"}, "push consumer"),
        ({"ack_policy": "all"}, "ack policy 'all'"),
        ({"priority_groups": ["a"]}, "priority groups"),
        ({"max_ack_pending": 999}, "--max-pending=1000"),
        ({"backoff": [S, 90_000 * S]}, "--wait=30s"),
    ],
)
def test_a_consumer_that_is_refused(change, words):
    """L14, L31: the reason and the command that helps."""
    assert words in refusal("s/c", {**GOOD, **change}, 1000)
    assert refusal("s/c", {**GOOD, "max_ack_pending": -1}, 1000) == ""


def test_limits():
    """L14: what can be asked is learnt, what cannot is a note."""
    found = limits_of("s", "c", {"retention": "limits", "max_age": 60 * S}, {"max_deliver": 5})
    assert (found.delivery_limit, found.dead_letters, found.consumer_timeout_s) == (4, False, 0)
    assert "60 s" in found.warnings[0]
    assert any("sync_interval" in each for each in found.notes)
    assert limits_of("s", "c", {}, {"max_deliver": 1}).delivery_limit == 1
    assert limits_of("s", "c", {}, {}).delivery_limit == 0
    full = limits_of("s", "c", {"max_msgs": 5, "discard": "old", "storage": "memory"}, {})
    assert len(full.warnings) == 2
    assert waits({"ack_wait": 30 * S, "backoff": [S, 60 * S]}) == (1, 60)
    assert waits({}) == (30, 30)


class Server(Connection):
    """A server with a stream and a consumer."""

    answers = {}  # noqa: RUF012 - a test changes its copy

    def __init__(self, *_):
        super().__init__()

    async def open(self, _):
        pass

    async def ask(self, subject, **_):
        return self.answers[subject.partition(".")[0]]


@pytest.fixture
def answers(monkeypatch):
    """What the servers answer, by the kind of the question."""
    found = {name: {"created": "then", "config": {}} for name in ("STREAM", "CONSUMER")}
    found["CONSUMER"]["config"] = GOOD
    monkeypatch.setattr(Server, "answers", found)
    monkeypatch.setattr(module, "NatsConnection", Server)
    return found


@pytest.fixture
def source():
    """A source of that stream."""
    return StreamSource(NatsAddress("nats://there"), "s", "c", "in", Limits(10, 1000))


async def test_a_stream_made_anew_is_learnt(answers, source):
    """L14, L30: when the look of each minute finds another stream, the subscription ends."""
    subscription = await source.subscribe()
    answers["STREAM"]["created"] = "now"
    with pytest.raises(CutError, match="deleted and created again"):
        await source.learn()
    with pytest.raises(CutError, match="deleted and created again"):
        await subscription.deliver()


async def test_an_ack_wait_that_is_shortened(answers, source):
    """L31: signs of progress follow the AckWait that the look of each minute finds."""
    subscription = await source.subscribe()
    server = subscription._connection
    server.bring(1)
    answers["CONSUMER"]["config"] = {**GOOD, "ack_wait": 3 * S}
    for _ in range(2):
        await source.learn()
        assert len(server.sent(b"+WPI")) == 1
    await asyncio.sleep(2.5)
    assert len(server.sent(b"+WPI")) == 3
    subscription.end(CutError("it ended"))
    answers["CONSUMER"]["config"] = GOOD
    await source.learn()
    assert len(server.sent(b"+WPI")) == 3
