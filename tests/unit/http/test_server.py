"""HTTP connections whose answers are not read, with a clock of the test; and failed logins."""

import asyncio
import socket
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from ackq.errors import UnauthenticatedError
from ackq_broker.http.server import BoundedListener, UnreadAnswers, _answers


@pytest.mark.parametrize(
    ("sizes", "aborted"),
    [
        ([9] * 15, False),
        ([9] * 16, True),
        ([0] * 60, False),
        ([9] * 10 + [8] * 10, False),
        ([9] * 14 + [0] + [9] * 14, False),
        ([0] * 10 + [9] * 16, True),
    ],
)
def test_an_answer_that_nobody_reads(sizes, aborted):
    """M1, I6: a connection is aborted after 15 s without a byte sent; idle and slow ones stay."""
    transport, answers = Mock(asyncio.Transport), UnreadAnswers()
    for second, unsent in enumerate(sizes):
        transport.get_write_buffer_size.return_value = unsent
        answers.poll([transport], 100.0 + second)
    answers.poll([], 200.0)
    assert answers._waiting == {}  # nothing is kept of a connection that ended
    assert transport.abort.called is aborted


def test_connections_are_refused_as_they_are_accepted(monkeypatch):
    """M1, I6: so also those that never begin a handshake; one that is closed makes room."""
    monkeypatch.setattr("ackq.limits.MAX_HTTP_CONNECTIONS_EACH", 2)
    with BoundedListener(socket.AF_INET, socket.SOCK_STREAM, 0) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        clients = [socket.create_connection(listener.getsockname()) for _ in range(4)]
        accepted, _ = listener.accept()
        with listener.accept()[0]:
            with pytest.raises(ConnectionAbortedError):
                listener.accept()
            assert clients[2].recv(1) == b""
            accepted.close()
            listener.accept()[0].close()
        for each in clients:
            each.close()


async def test_pipelined_requests_are_not_read_without_end():
    """I6: from the lowest version of aiohttp on, a connection with many of them is not read."""

    async def silent(_):
        await asyncio.Event().wait()

    connection, transport = web.Server(silent)(), Mock(asyncio.Transport)
    connection.connection_made(transport)
    connection.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
    transport.pause_reading.assert_called_once_with()
    connection.connection_lost(None)


@pytest.mark.parametrize(("headers", "waits"), [({}, 0), ({"Authorization": "Bearer guess"}, 1)])
async def test_only_a_wrong_token_waits(headers, waits):
    """A3: a request without a token, as of a page before its user signs in, is refused at once."""
    slowed = []

    class Failures:
        async def slow(self, peer):
            slowed.append(peer)

    async def refuse(_):
        raise UnauthenticatedError("no")

    answer = await _answers(Failures())(make_mocked_request("GET", "/", headers), refuse)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert len(slowed) == waits
