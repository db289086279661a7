"""What RabbitMQ's HTTP API says of a queue, from a server that says what RabbitMQ does."""

import asyncio
import base64
import http.server
import json
import threading

import pytest

from ackq.errors import NotFoundError, UnauthenticatedError
from ackq_broker.link.adapter import CutError
from ackq_broker.link.amqp091.address import BrokerAddress
from ackq_broker.link.amqp091.management import Management, limits_of

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
    """L14: of argument and policy the smaller rules."""
    limits = limits_of(found)
    assert limits.delivery_limit == limit
    assert limits.consumer_timeout_s == timeout_s
    assert limits.dead_letters is dead_letters
    assert limits.kind == found.get("type", "")


@pytest.fixture
def api():
    """A server that answers as it is told, and what it was asked."""
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
            """Not on the terminal."""

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


def test_what_is_asked(api):
    """L14: the queue of the virtual host, as the link's user."""
    management, handler, asked = api
    handler.answer = (200, json.dumps(QUORUM).encode())
    assert ask(management).kind == "quorum"
    login = base64.b64encode(b"link:hidden").decode()
    assert asked == [("/api/queues/a%2Fb/orders%2F1", f"Basic {login}")]


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        ((401, b""), UnauthenticatedError),
        ((404, b""), NotFoundError),
        ((500, b""), None),
        ((200, b"<html>"), None),
        ((200, b"[]"), None),
    ],
)
def test_other_answers(api, answer, refusal):
    """L14: what waiting does not mend is refused; the password is in no message."""
    management, handler, _ = api
    handler.answer = answer
    with pytest.raises(CutError) as raised:
        ask(management)
    assert (type(raised.value.refusal) if raised.value.refusal else None) is refusal
    assert "hidden" not in str(raised.value)


def test_nobody_listens():
    """L14: it is waited for."""
    with pytest.raises(CutError) as raised:
        ask(Management("http://127.0.0.1:1"))
    assert raised.value.refusal is None
