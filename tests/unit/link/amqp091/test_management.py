"""Queue limits from RabbitMQ's HTTP API, read from a server that answers as RabbitMQ does."""

import asyncio
import http.server
import json
import threading

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


@pytest.mark.parametrize(
    ("found", "limit", "timeout_s", "dead_letters"),
    [
        (QUORUM, 3, None, True),
        ({"type": "classic", "arguments": {}}, None, None, False),
        ({"type": "quorum", "arguments": {"x-delivery-limit": -1}}, 0, None, False),
        ({"arguments": {"x-consumer-timeout": 90_000}}, None, 90, False),
        (
            {
                "arguments": {"x-dead-letter-exchange": "d"},
                "effective_policy_definition": {"consumer-timeout": 500},
            },
            None,
            0.5,
            True,
        ),
        ({"arguments": None, "effective_policy_definition": []}, None, None, False),
    ],
)
def test_what_is_read(found, limit, timeout_s, dead_letters):
    """L14: of a limit in argument and policy the smaller one applies."""
    limits = limits_of(found)
    assert limits.delivery_limit == limit
    assert limits.consumer_timeout_s == timeout_s
    assert limits.dead_letters is dead_letters
    assert limits.kind == found.get("type", "")


@pytest.fixture
def api():
    """A server with prepared answers; yields client, handler and recorded requests."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        answer = (200, b"{}")

        def do_GET(self):
            asked.append((self.path, self.headers["Authorization"]))
            status, body = Handler.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Keeps the server's log off the terminal."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Management(f"http://127.0.0.1:{server.server_port}/"), Handler, asked
    server.shutdown()
    thread.join()
    server.server_close()


def ask(management):
    address = BrokerAddress("amqp://h/a%2Fb", "link", "hidden")
    return asyncio.run(management.queue_limits(address, "orders/1"))


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        ((404, b""), NotFoundError),
        ((500, b""), None),
        ((200, b"<html>"), None),
        ((200, b"[]"), None),
    ],
)
def test_other_answers(api, answer, refusal):
    """L14: a missing queue is refused, other errors are cuts; no message has the password."""
    management, handler, _ = api
    handler.answer = answer
    with pytest.raises(CutError) as raised:
        ask(management)
    assert (type(raised.value.refusal) if raised.value.refusal else None) is refusal
    assert "hidden" not in str(raised.value)


SINGLE = {"type": "quorum", "arguments": {"x-single-active-consumer": True}}


def learnt_of(management, version, **told):
    """The limits that a source derives from the API's answer for a broker version."""
    address = BrokerAddress("amqp://h", "link", "hidden")
    source = QueueSource(
        address,
        "orders",
        "link",
        Limits(1, 1),
        QueueLimits(**told),
        management,
        Seen(False, version),
    )
    return source.limits_of(asyncio.run(management.queue_limits(address, "orders")))


@pytest.mark.parametrize(
    ("version", "change", "told", "warned"),
    [
        ((4, 3, 0), {}, {}, True),
        ((4, 3, 5), {}, {}, True),
        ((4, 3, 6), {}, {}, False),
        ((4, 2, 9), {}, {}, False),
        ((3, 10, 8), {}, {}, False),
        ((), {}, {}, False),
        ((4, 3, 2), {"type": "classic"}, {}, False),
        ((4, 3, 2), {"effective_policy_definition": {"consumer-timeout": 9}}, {}, False),
        ((4, 3, 2), {}, {"consumer_timeout_s": 60.0}, False),
    ],
)
def test_single_active_consumers_by_version(api, version, change, told, warned):
    """L17: versions that stop such a queue for ever get a warning, every version a note."""
    management, handler, _ = api
    handler.answer = (200, json.dumps({**SINGLE, **change}).encode())
    found = learnt_of(management, version, **told)
    assert [text for text in found.notes if "another consumer or link waits" in text]
    assert len(found.warnings) == warned
    if warned:
        shown = ".".join(map(str, version))
        assert f"RabbitMQ {shown} stops" in found.warnings[0]
        assert "Give the queue a consumer-timeout" in found.warnings[0]
