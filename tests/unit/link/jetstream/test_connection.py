"""A connection to a server that answers nothing, and the parser that takes a link's messages."""

import asyncio
import json
from contextlib import asynccontextmanager
from unittest.mock import ANY, AsyncMock, call

import pytest
from nats.errors import ProtocolError

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


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, 1000])
async def test_messages_are_taken_however_they_come(step):
    """L8, L17: cut at any byte, a link's messages come in order, and the library gets the rest."""
    library, taken = AsyncMock(), []
    parser = _Parser(library, {1: taken.append})
    for at in range(0, len(WIRE), step):
        await parser.parse(WIRE[at : at + step])
    assert taken == TAKEN
    other = call._process_msg(2, ANY, ANY, b"abc", ANY)
    assert library.mock_calls == [call._process_ping(), other, call._process_pong()]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("quoted", "subject"),
    [("Denied.x", "Denied.x"), ("a.'é", "a.'é"), (r"a.\"\\\u00a0", 'a."\\\xa0'), ("\\", None)],
)
async def test_a_publish_that_is_denied(quoted, subject, known):
    """L22: the subject is taken as it was sent, in its case; the library gets what nobody knows."""
    library, denied = AsyncMock(), []
    parser = _Parser(library, {}, lambda each: denied.append(each) or known)
    said = f"'Permissions Violation for Publish to \"{quoted}\"'"
    await parser.parse(f"-ERR {said}\r\nPING\r\n".encode())
    assert denied == ([subject] if subject else [])
    left = [] if known and subject else [call._process_err(said.lower())]
    assert library.mock_calls == [*left, call._process_ping()]


def test_the_server_closes_because_of_a_message():
    """L22: its words tell it."""
    address = NatsAddress("nats://there")
    for said, by_message in (("maximum control line exceeded", True), ("slow consumer", False)):
        assert cut_of(f"nats: '{said}'", address).by_message == by_message
    assert cut_of("nats: 'Maximum Payload Violation'", address).by_message


@pytest.mark.parametrize(
    "line",
    [
        *(b"MSG a 1 -15", b"MSG a 1", b"MSG a 1 x", b"MSG a b 1", b"MSG a 1 r s 1", b"MSG  "),
        *(b"HMSG a 1 13 12", b"HMSG a 1 -1 12", b"HMSG a 12 12", b"HMSG "),
    ],
)
async def test_lines_that_are_none_of_a_message(line):
    """L17: they end the connection, and are not read again and again."""
    taken = []
    with pytest.raises(ProtocolError):
        await _Parser(AsyncMock(), {1: taken.append}).parse(line + b"\r\nNATS/1.0\r\n\r\n\r\n")
    assert taken == []


@asynccontextmanager
async def connected(answer, *, jetstream=True):
    """A connection to a server that gives each request this answer, with its place `to`."""
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
                writer.write(answer % {b"to": b"%b %b" % (words[2], number)})
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        connection = NatsConnection(NatsAddress(f"nats://127.0.0.1:{port}"), "S/link")
        await connection.open("in")
        yield connection
        await connection.close()


@pytest.mark.parametrize(("jetstream", "refused"), [(True, False), (False, True)])
async def test_a_server_where_nobody_answers(jetstream, refused):
    """L14, L17: it is asked again while its JetStream starts, and refused without JetStream."""
    none = b"HMSG %(to)b 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    async with connected(none, jetstream=jetstream) as connection:
        with pytest.raises(CutError) as found:
            await connection.ask("STREAM.INFO.S")
    assert isinstance(found.value.refusal, NotFoundError) == refused
    assert ("does not answer yet" in found.value.reason) != refused


@pytest.mark.parametrize("said", [b"OK", b"[]", b"{}", b'{"config": 1}', b"\xff"])
async def test_an_answer_that_is_none_of_the_api(said):
    """L17: it is a cut, which names what is missing."""
    async with connected(b"MSG %%(to)b %d\r\n%b\r\n" % (len(said), said)) as connection:
        with pytest.raises(CutError, match=r"no answer of JetStream to STREAM.INFO.S: .*no config"):
            await connection.ask("STREAM.INFO.S", created=str, config=dict)


async def test_a_line_that_is_none_ends_the_connection():
    """L17: what waits for an answer meets a cut."""
    async with connected(b"MSG %(to)b -15\r\n") as connection:
        with pytest.raises(CutError, match=r"(?i)protocol error"):
            await connection.ask("STREAM.INFO.S")
