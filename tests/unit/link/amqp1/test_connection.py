"""Connections to servers that are not AMQP 1.0 brokers."""

import asyncio

import pytest

from tests.optional import needs

needs("proton", "amqp1")
pytestmark = pytest.mark.servers

from ackq.errors import InvalidArgumentError  # noqa: E402
from ackq_link.adapter import CutError  # noqa: E402
from ackq_link.amqp1 import connection  # noqa: E402
from ackq_link.amqp1.address import Amqp1Address  # noqa: E402
from ackq_link.amqp1.connection import Amqp1Connection, connect  # noqa: E402


async def cut_by(answer):
    """The `CutError` of connecting to a server that sends this answer and closes."""

    async def serve(reader, writer):
        await reader.readexactly(8)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CutError) as raised:
            await connect(Amqp1Address(f"amqp://127.0.0.1:{port}", "u", "hidden"), "l", "q")
        return raised.value


@pytest.mark.parametrize("answer", [b"AMQP\x00\x00\x09\x01", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_another_protocol(answer):
    """L17: another protocol is a refusal, as waiting does not help."""
    cut = await cut_by(answer)
    assert isinstance(cut.refusal, InvalidArgumentError)
    assert "does not speak AMQP 1.0" in cut.reason


async def test_a_server_that_closes():
    """L17: a server that closes may be starting: a cut, not a refusal."""
    cut = await cut_by(b"")
    assert cut.refusal is None
    assert "hidden" not in cut.reason


async def test_an_attach_without_an_answer(monkeypatch):
    """L17: a broker that does not answer an attach is a cut, and the link tries again."""
    monkeypatch.setattr(connection, "_CONNECT_S", 0)
    silent = Amqp1Connection(Amqp1Address("amqp://127.0.0.1:1"), "l", "q")
    with pytest.raises(CutError, match="has not answered for 0 s") as raised:
        await silent.receive("q")
    assert raised.value.refusal is None
