"""A connection to a server that answers nothing, and the parser that takes a link's messages."""

import asyncio
import json

import pytest

from ackq.errors import NotFoundError
from ackq_link.adapter import CutError
from ackq_link.jetstream.address import NatsAddress, cut_of
from ackq_link.jetstream.connection import NatsConnection, Received, _Parser

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

    async def _process_err(self, said):
        self.calls.append(said)

    async def _process_msg(self, sid, _subject, _reply, data, _headers):
        self.calls.append((sid, data))


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, 1000])
async def test_messages_are_taken_however_they_come(step):
    """L8, L17: cut at any byte, a link's messages come in order, and the library gets the rest."""
    library, taken = Library(), []
    parser = _Parser(library, {1: taken.append})
    for at in range(0, len(WIRE), step):
        await parser.parse(WIRE[at : at + step])
    assert taken == TAKEN
    assert library.calls == ["ping", (2, b"abc"), "pong"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("quoted", "subject"),
    [("Denied.x", "Denied.x"), ("a.'é", "a.'é"), (r"a.\"\\\u00a0", 'a."\\\xa0'), ("\\", None)],
)
async def test_a_publish_that_is_denied(quoted, subject, known):
    """L22: the subject is taken as it was sent, in its case; the library gets what nobody knows."""
    library, denied = Library(), []
    parser = _Parser(library, {}, lambda each: denied.append(each) or known)
    said = f"'Permissions Violation for Publish to \"{quoted}\"'"
    await parser.parse(f"-ERR {said}\r\nPING\r\n".encode())
    assert denied == ([subject] if subject else [])
    assert library.calls == [*([] if known and subject else [said.lower()]), "ping"]


def test_the_server_closes_because_of_a_message():
    """L22: its words tell it."""
    address = NatsAddress("nats://there")
    for said, by_message in (("maximum control line exceeded", True), ("slow consumer", False)):
        assert cut_of(f"nats: '{said}'", address).by_message == by_message
    assert cut_of("nats: 'Maximum Payload Violation'", address).by_message


@pytest.mark.parametrize(("jetstream", "refused"), [(True, False), (False, True)])
async def test_a_server_where_nobody_answers(jetstream, refused):
    """L14, L17: it is asked again while its JetStream starts, and refused without JetStream."""
    info = {"jetstream": jetstream, "headers": True, "max_payload": 1 << 20, "proto": 1}

    async def serve(reader, writer):
        writer.write(b"INFO %b\r\n" % json.dumps(info).encode())
        while words := (await reader.readline()).split():
            if words[0] == b"SUB":
                number = words[-1]
            elif words[0] == b"PING":
                writer.write(b"PONG\r\n")
            elif words[0] == b"PUB":
                await reader.readline()
                none = b"NATS/1.0 503\r\n\r\n"
                size = len(none)
                writer.write(b"HMSG %b %b %d %d\r\n%b\r\n" % (words[2], number, size, size, none))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        connection = NatsConnection(NatsAddress(f"nats://127.0.0.1:{port}"), "S/link")
        await connection.open("in")
        with pytest.raises(CutError) as found:
            await connection.ask("STREAM.INFO.S")
        await connection.close()
    assert isinstance(found.value.refusal, NotFoundError) == refused
    assert ("does not answer yet" in found.value.reason) != refused
