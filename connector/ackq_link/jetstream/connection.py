"""A connection to a NATS server: subscriptions, raw frames, requests to JetStream's API.

The library connects, authenticates, encrypts and pings; messages of a link's own subscriptions go
around its parser: on busy cores a message of 100 bytes and its answered acknowledgement take 43 us
of CPU, where the library takes 113 us without an answer, and 300 with one (measured). With a
version of the library whose private names differ the connection fails at its start.

Invariant: what a subscription's function gets has the order of the wire, and nothing is written
after the end of the connection.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from nats.aio.client import Client
from nats.errors import Error, NoRespondersError, ProtocolError
from nats.protocol.parser import Parser

from ackq.errors import InvalidArgumentError
from ackq_link.adapter import CutError
from ackq_link.jetstream.address import NatsAddress, api_error, cut_of, json_object

CALL_S: Final = 10.0
_CONNECT_S: Final = 20.0
_CLOSE_S: Final = 5.0
_ABORT_S: Final = 0.2
_END: Final = b"\r\n"
# The words of a message's line, without and with a reply; the size of headers is one more.
_WORDS: Final = (4, 5)
# A publish that the user may not do; the connection stays. The subject is quoted as by Go.
_DENIED: Final = re.compile(
    rb"-ERR\s+'Permissions Violation for Publish to (\".*\")'", re.IGNORECASE
)
# Pings without an answer before the connection is cut.
_MISSED: Final = 2


class Received(NamedTuple):
    """A message of the wire: `headers` is its header block, empty without one."""

    subject: bytes
    reply: bytes
    headers: bytes
    body: bytes


Take = Callable[[Received], None]


class NatsConnection:
    """A connection; `on_end` is called once with the cut that ends it.

    Args:
        address: The server.
        place: The stream, consumer or subject that it is for, for errors.

    Attributes:
        on_denied: Called with a subject that the user may not publish to; False ends the
            connection.
    """

    def __init__(self, address: NatsAddress, place: str) -> None:
        self.address = address
        self.place = place
        self.on_end: Callable[[CutError], None] = lambda _: None
        self.on_denied: Callable[[str], bool] = lambda _: False
        self.cut: CutError | None = None
        self._client = _Client(address)
        self._takes: dict[int, Take] = {}
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, name: str) -> None:
        """Connects; the server's operators see `name`. Raises CutError."""
        address, client = self.address, self._client
        try:
            context = address.tls.context() if address.secure else None
            async with asyncio.timeout(_CONNECT_S):
                await client.connect(
                    address.url,
                    name=f"ackq link {name}",
                    tls=context,
                    user=address.user or None,
                    password=(address.secret() or None) if address.user else None,
                    allow_reconnect=False,
                    ping_interval=address.heartbeat_s,
                    max_outstanding_pings=_MISSED,
                    error_cb=self._on_error,
                )
            if not client.is_connected:
                raise ConnectionError("the server closed the connection")  # noqa: TRY301 - one way out
        except BaseException as error:
            await self.close()
            if isinstance(error, Exception):
                raise cut_of(error, address, self.place) from None
            raise
        client._ps = _Parser(client, self._takes, self._denied)  # noqa: SLF001 - there is no other way to it
        assert client._reading_task is not None  # noqa: SLF001 - same
        client._reading_task.add_done_callback(self._on_read)  # noqa: SLF001 - same

    @property
    def most_bytes(self) -> int:
        """The largest message that the server takes, with its headers."""
        return self._client.max_payload

    def new_inbox(self) -> str:
        """A subject of this connection alone."""
        return self._client.new_inbox()

    async def listen(self, subject: str, take: Take) -> None:
        """Subscribes; `take`, which must not wait, gets each message. Raises CutError."""
        subscription = await self._answer(self._client.subscribe(subject))
        self._takes[subscription._id] = take  # noqa: SLF001 - same

    async def forget(self, take: Take) -> None:
        """Ends a subscription; what was sent before is still taken. Raises CutError."""
        numbers = [number for number, each in self._takes.items() if each == take]
        self.write(b"UNSUB %d\r\n" % number for number in numbers)
        await self.flush()

    def write(self, frames: Iterable[bytes]) -> None:
        """Writes frames of the protocol; does nothing after the end."""
        if self.cut is None and self._client.is_connected:
            self._client._transport.writelines(list(frames))  # type: ignore[union-attr] # noqa: SLF001 - same

    async def drain(self) -> None:
        """Waits until the socket has taken most of what was written."""
        if self.cut is None and self._client.is_connected:
            with suppress(OSError):
                await self._client._transport.drain()  # type: ignore[union-attr] # noqa: SLF001 - same

    async def flush(self) -> None:
        """Waits until the server has read all frames so far. Raises CutError."""
        await self._answer(self._client.flush(int(CALL_S)))

    async def ask(
        self, subject: str, question: object = None, **needed: type[object]
    ) -> dict[str, Any]:
        """An answer of JetStream's API.

        Args:
            subject: The call.
            question: What is asked, as JSON; None: nothing.
            **needed: Parts that the answer must have, and their types.

        Raises:
            CutError: There is none, or not with these parts; with a refusal for what does not
                exist.
        """
        data = b"" if question is None else json.dumps(question).encode()
        try:
            reply = await self._answer(self._client.request(f"$JS.API.{subject}", data, CALL_S))
        except NoRespondersError:
            # A server of a cluster may not answer yet; it says whether it has JetStream.
            has = self._client._server_info.get("jetstream")  # noqa: SLF001 - no other way to it
            said = "JetStream does not answer yet" if has else "jetstream not enabled"
            raise cut_of(said, self.address, self.place) from None
        answer = json_object(reply.data)
        if error := api_error(answer):
            raise cut_of(error, self.address, self.place)
        if bad := [name for name, kind in needed.items() if not isinstance(answer.get(name), kind)]:
            said = f"no answer of JetStream to {subject}: it has no {' and no '.join(bad)}"
            raise cut_of(said, self.address, self.place)
        return answer

    async def _answer(self, call: Any) -> Any:
        """The result of a call, unless the connection ends before. Raises CutError."""
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait((task, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if self.cut is not None:
                raise self.cut
            return task.result()
        except NoRespondersError:
            raise
        except (Error, OSError, TimeoutError) as error:
            raise cut_of(error, self.address, self.place) from None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Writes what is pending and ends the connection; never raises."""
        self.on_end = lambda _: None
        with suppress(Exception):
            # After a TLS handshake that failed the library waits for an end that does not come.
            async with asyncio.timeout(_CLOSE_S if self._client.is_connected else _ABORT_S):
                await self._client.close()
        self.end(CutError("closed"))

    def end(self, cut: CutError) -> None:
        """Ends what waits for the connection, for this reason."""
        if self.cut is None:
            self.cut = cut
            self._ended.set_result(None)
            self.on_end(cut)

    async def _on_error(self, error: Exception) -> None:
        """Called by the library: an error while it connects, of the server, or the end."""
        if not self._client.is_connected:
            raise error
        self.end(cut_of(error, self.address, self.place))

    def _denied(self, subject: str) -> bool:
        return self.on_denied(subject)

    def _on_read(self, reading: asyncio.Task[None]) -> None:
        """Ends with the task that reads; after a reset the library may not say that it closed."""
        error = None if reading.cancelled() else reading.exception()
        error = error or self._client.last_error or ConnectionError("the connection was closed")
        self.end(cut_of(error, self.address, self.place))


class _Client(Client):
    """Sends no password to a server without TLS that is to have it."""

    def __init__(self, address: NatsAddress) -> None:
        super().__init__()
        self._address = address

    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002 - the library's
    ) -> None:
        if initial_connection and self._address.secure:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise InvalidArgumentError(
                    f"{self._address.url}: the server has no TLS. Configure it there (tls), or"
                    " write the URL as nats://, which is not encrypted."
                )
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


class _Parser(Parser):
    """Reads messages of a link's subscriptions; leaves everything else to the library."""

    def __init__(
        self,
        client: Client,
        takes: dict[int, Take],
        denied: Callable[[str], bool] = lambda _: False,
    ) -> None:
        super().__init__(client)
        self._takes = takes
        self._denied = denied
        self._rest = bytearray()
        self._wanted = 0

    async def parse(self, data: bytes = b"") -> None:
        """Takes bytes as they come; keeps the beginning of a message until it is whole.

        Raises:
            ProtocolError: They are no messages; the library ends the connection.
        """
        self._rest += data
        if len(self._rest) < self._wanted:
            return
        wire, at, self._wanted = bytes(self._rest), 0, 0
        while (end := wire.find(_END, at)) >= 0:
            message = wire.startswith((b"MSG ", b"HMSG "), at)
            after = end + len(_END)
            if not message:
                subject = _denied(wire[at:end])
                if not subject or not self._denied(subject):
                    await super().parse(wire[at:after])
                at = after
                continue
            words = wire[at:end].split()
            headed = words[0] == b"HMSG"
            if len(words) - headed not in _WORDS:
                raise ProtocolError
            size, head = _number(words[-1]), _number(words[-2]) if headed else 0
            if head > size:
                raise ProtocolError
            if len(wire) < after + size + len(_END):
                self._wanted = after - at + size + len(_END)
                break
            body = after + head
            reply = words[3] if len(words) == (6 if headed else 5) else b""
            stop = after + size
            take = self._takes.get(_number(words[2]))
            if take is not None:
                take(Received(words[1], reply, wire[after:body], wire[body:stop]))
            else:
                await super().parse(wire[at : stop + len(_END)])
            at = stop + len(_END)
        del self._rest[:at]


def _number(text: bytes) -> int:
    """A number of a message's line. Raises ProtocolError."""
    if not text.isdigit():
        raise ProtocolError
    return int(text)


def _denied(line: bytes) -> str:
    """The subject that the user may not publish to; empty: the server says something else."""
    found = _DENIED.match(line)
    with suppress(ValueError, SyntaxError):
        return str(ast.literal_eval(found[1].decode())) if found else ""
    return ""
