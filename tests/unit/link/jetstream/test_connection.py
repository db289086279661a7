"""The parser that takes a link's own messages from the wire."""

import asyncio

import pytest

from ackq_link.jetstream.connection import Received, _Parser

WIRE = (
    b"PING\r\n"
    b"MSG a.b 1 4\r\n+\r\n-\r\n"
    b"MSG a 1 r 0\r\n\r\n"
    b"HMSG a 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    b"HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    b"MSG other 2 3\r\nabc\r\n"
    b"PONG\r\n"
)
TAKEN = [
    Received(b"a.b", b"", b"", b"+\r\n-"),
    Received(b"a", b"r", b"", b""),
    Received(b"a", b"r", b"NATS/1.0\r\n\r\n", b"hi"),
    Received(b"a", b"", b"NATS/1.0\r\n\r\n", b""),
]


class Library:
    """Records what is left to the library."""

    def __init__(self):
        self.calls = []

    async def _process_ping(self):
        self.calls.append("ping")

    async def _process_pong(self):
        self.calls.append("pong")

    async def _process_msg(self, sid, _subject, _reply, data, _headers):
        self.calls.append((sid, data))


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, 1000])
def test_messages_are_taken_however_they_come(step):
    """L8, L17: cut at any byte, a link's messages come in order, and the library gets the rest."""
    library, taken = Library(), []

    async def work():
        parser = _Parser(library, {1: taken.append})
        for at in range(0, len(WIRE), step):
            await parser.parse(WIRE[at : at + step])

    asyncio.run(work())
    assert taken == TAKEN
    assert library.calls == ["ping", (2, b"abc"), "pong"]
