"""An AMQP 1.0 connection and its links, driven by asyncio.

Proton's engine does frames, sessions, links and SASL, and no input or output: this module moves the
bytes, in the event loop of the links, so there is no thread and no hand-over between threads. TLS
is the standard library's, as for every connection of a link. Invariant: a connection ends once,
with one cut, and calls no callback after that.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from proton import (
    SASL,
    Collector,
    Connection,
    Delivery,
    Event,
    Link,
    ProtonException,
    Receiver,
    Sender,
    Session,
    Terminus,
    Transport,
    symbol,
)

from ackq_link.adapter import CutError
from ackq_link.amqp1.address import (
    NO_QUEUE,
    OTHER_PROTOCOL,
    SASL_FAILED,
    Amqp1Address,
    Condition,
    cut_of,
)

_CONNECT_S: Final = 20.0
# A port that speaks no TLS may wait for more, and never answer.
_HANDSHAKE_S: Final = 10.0
_CLOSE_S: Final = 5.0
_MAX_FRAME_BYTES: Final = 1 << 16
_FRAMING: Final = "amqp:connection:framing-error"
# Between an address of Artemis and one of its queues.
_OF_ADDRESS: Final = "::"


class Amqp1Connection(asyncio.Protocol):
    """One AMQP 1.0 connection; `connect` makes it.

    Args:
        address: The broker.
        name: The link's name, shown to the operators of the remote broker.
        place: The queue that the connection is for, for errors.

    Attributes:
        on_deliveries: Called with the deliveries that received bytes changed, in their order.
        on_drained: Called when a draining receiver has got all messages available for it.
        on_end: Called when the connection ends other than by `close`.
    """

    def __init__(self, address: Amqp1Address, name: str, place: str) -> None:
        self._address = address
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.WriteTransport | None = None
        self._connection = Connection()
        self._connection.container = f"ackq link {name}"
        self._connection.hostname = address.virtual_host
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._engine = self._new_engine()
        self._ping: Session | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._attached: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._heard = False
        self.cut: CutError | None = None
        self.on_deliveries: Callable[[list[Delivery]], None] = lambda _: None
        self.on_drained: Callable[[], None] = lambda: None
        self.on_end: Callable[[CutError], None] = lambda _: None
        self._on_pong: Callable[[], None] | None = None

    @property
    def product(self) -> str:
        """The product name that the broker announces; empty: none."""
        properties: Mapping[Any, Any] = self._connection.remote_properties or {}
        return str(properties.get("product", ""))

    async def receive(self, queue: str, *, browse: bool = False) -> Receiver:
        """Attaches a receiving link to a queue, without credit. Raises CutError.

        Args:
            queue: The queue's address; empty: the broker makes one for the lifetime of this link.
            browse: Whether it gets copies, and every message stays in the queue.
        """
        link = self._new_session().receiver(_link_name(queue))
        if queue:
            link.source.address = queue
            # Else Artemis makes a queue of its own for this link at an address that is a topic.
            _ask_for_queue(link.source)
        else:
            link.source.dynamic = True
        if browse:
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
        # An accepted delivery is settled by the broker's answer, if it gives one; see `source`.
        link.rcv_settle_mode = Link.RCV_SECOND
        await self._attach(link)
        if queue and _OF_ADDRESS not in queue and "topic" in _offered(link.remote_source):
            said = "the broker says that it is a topic"  # as Qpid does of an exchange
            raise cut_of(self._address, Condition(NO_QUEUE, said), self._place)
        return link

    async def send(self, queue: str) -> Sender:
        """Attaches a sending link to a queue. Raises CutError."""
        link = self._new_session().sender(_link_name(queue))
        link.target.address = queue
        # Else Artemis accepts and drops messages to a topic, and makes one of an unknown address.
        _ask_for_queue(link.target)
        await self._attach(link)
        if "DISCARD_UNROUTABLE" in _offered(link.remote_target):
            said = "the broker accepts and drops messages that have no queue there"  # an exchange
            raise cut_of(self._address, Condition(NO_QUEUE, said), self._place)
        return link

    def ping(self, on_pong: Callable[[], None]) -> bool:
        """Calls back when the broker has processed all frames that were sent before.

        The broker answers the begin of a session, in the order of the frames. Only one ping is in
        flight at a time.

        Returns:
            Whether the ping was sent.
        """
        if self._ping is not None or self.cut is not None:
            return False
        self._on_pong = on_pong
        self._ping = self._connection.session()
        self._ping.open()
        self.flush()
        return True

    def flush(self) -> None:
        """Sends the engine's pending bytes, and processes the events that this causes."""
        if self._socket is None or self.cut is not None:
            return
        try:
            self._process()
            while (size := self._engine.pending()) > 0:
                data = self._engine.peek(size)
                assert data, "it is pending"
                self._socket.write(bytes(data))
                self._engine.pop(len(data))
                self._process()
        except ProtonException as error:
            self._end(cut_of(self._address, error, self._place))
            return
        if size < 0 and self.cut is None and not self._closing:
            self._end(self._engine_cut())
        else:
            self._tick()

    async def close(self) -> None:
        """Closes the connection; never raises."""
        self._closing = True
        if self._socket is not None and self.cut is None:
            with suppress(TimeoutError, ProtonException):
                self._connection.close()
                self.flush()
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.shield(self._gone)
        self._forget()
        if self._socket is not None:
            self._socket.abort()

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Opens the AMQP connection: the socket is connected, and the TLS handshake is done."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._socket = transport
        self._connection.open()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Feeds bytes of the broker to the engine."""
        self._heard = True
        try:
            while data and self.cut is None:
                room = self._engine.capacity()
                if room <= 0:
                    break
                self._engine.push(data[:room])
                data = data[room:]
                self._process()
        except ProtonException as error:
            self._end(cut_of(self._address, error, self._place))
            return
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection with a cut: the socket was closed."""
        if not self._gone.done():
            self._gone.set_result(None)
        self._end(cut_of(self._address, exc or ConnectionError(self._closed)))

    @property
    def _closed(self) -> str:
        """The explanation of a close without a reason."""
        if self._address.secure and not self._heard:
            # Qpid refuses a client certificate in this way, without a TLS alert.
            return (
                "the broker closed the connection without a reason. If it wants a client"
                " certificate, name one that it trusts with cert and key"
            )
        return "the connection was closed"

    # --- engine ---

    def _new_engine(self) -> Transport:
        address = self._address
        engine = Transport(Transport.CLIENT)
        engine.max_frame_size = _MAX_FRAME_BYTES
        engine.idle_timeout = 3 * address.heartbeat_s
        sasl = engine.sasl()
        sasl.allowed_mechs(address.mechanism)
        # The engine does not know whether the socket is encrypted.
        sasl.allow_insecure_mechs = True
        if address.user:
            self._connection.user = address.user
            self._connection.password = address.secret()
        engine.bind(self._connection)
        return engine

    def _new_session(self) -> Session:
        session = self._connection.session()
        session.open()
        return session

    async def _attach(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        self._attached = self._loop.create_future()
        link.open()
        self.flush()
        await self._answer(self._attached)

    async def _answer(self, future: asyncio.Future[None]) -> None:
        """Waits for an answer of the broker; raises the cut that came instead."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                await future
        except TimeoutError:
            # Qpid did so now and then with an attach under the name of one that a cut had ended.
            said = f"the broker has not answered for {_CONNECT_S:.0f} s"
            raise cut_of(self._address, TimeoutError(said)) from None
        if self.cut is not None:
            raise self.cut

    async def opened(self) -> None:
        """Waits until the broker has opened the connection. Raises CutError."""
        await self._answer(self._opened)

    def _tick(self) -> None:
        """Sends a heartbeat when one is due, and notices a silent broker."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._engine.tick(self._loop.time())
        if due and self.cut is None:
            self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._engine.tick(self._loop.time())
        self.flush()

    def _process(self) -> None:
        """Handles the engine's pending events, in order."""
        deliveries: list[Delivery] = []
        while (event := self._collector.peek()) is not None:
            kind = event.type
            if kind is Event.DELIVERY:
                deliveries.append(event.delivery)
            else:
                handler = _HANDLERS.get(kind)
                if handler is not None:
                    handler(self, event)
            self._collector.pop()
        if deliveries and self.cut is None:
            self.on_deliveries(deliveries)

    def _on_open(self, _: Event) -> None:
        _done(self._opened)

    def _on_attach(self, event: Event) -> None:
        link = event.link
        end = link.remote_source if link.is_receiver else link.remote_target
        if end.address is not None:  # without an address a refusal follows
            _done(self._attached)

    def _on_flow(self, event: Event) -> None:
        link = event.link
        # Messages that arrived in the same bytes count as credit until they are taken.
        if link.is_receiver and link.drain_mode and link.credit <= link.queued:
            self.on_drained()

    def _on_detach(self, event: Event) -> None:
        self._end_by(event.link.remote_condition, "the broker ended the link")

    def _on_begin(self, event: Event) -> None:
        if self._ping is None or event.session != self._ping:
            return
        self._ping.close()
        if self._on_pong is not None:
            self._on_pong()

    def _on_session_end(self, event: Event) -> None:
        if self._ping is not None and event.session == self._ping:
            self._ping.free()
            self._ping = None
            return
        self._end_by(event.session.remote_condition, "the broker ended the session")

    def _on_close(self, event: Event) -> None:
        self._end_by(event.connection.remote_condition, "the broker closed the connection")
        _done(self._gone)

    def _on_error(self, _: Event) -> None:
        self._end(self._engine_cut())

    def _engine_cut(self) -> CutError:
        """The cut that made the engine end, from its SASL outcome or condition."""
        if self._engine.sasl().outcome in {SASL.AUTH, SASL.PERM}:
            return cut_of(self._address, Condition(SASL_FAILED, ""), self._place)
        found = self._engine.condition
        if found is None:
            return cut_of(self._address, ConnectionError("the connection was closed"))
        if found.name == _FRAMING and not self._opened.done():
            return cut_of(self._address, Condition(OTHER_PROTOCOL, ""), self._place)
        if found.name == "amqp:unauthorized-access":  # before the open: no SASL mechanism fits
            return cut_of(self._address, Condition(SASL_FAILED, ""), self._place)
        return cut_of(self._address, Condition(found.name, found.description or ""), self._place)

    # --- the end ---

    def _end_by(self, condition: Any, otherwise: str) -> None:
        if condition is None:
            error: BaseException | Condition = ConnectionError(otherwise)
        else:
            error = Condition(condition.name, condition.description or "")
        self._end(cut_of(self._address, error, self._place))

    def _end(self, cut: CutError) -> None:
        if self.cut is not None:
            return
        self.cut = cut
        self._forget()
        for future in (self._opened, self._attached):
            _done(future)
        if self._socket is not None:
            self._socket.abort()
        if not self._closing:
            self.on_end(cut)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_HANDLERS: Final[Mapping[Any, Callable[[Amqp1Connection, Event], None]]] = {
    Event.CONNECTION_REMOTE_OPEN: Amqp1Connection._on_open,  # noqa: SLF001 - its own table
    Event.CONNECTION_REMOTE_CLOSE: Amqp1Connection._on_close,  # noqa: SLF001 - same
    Event.SESSION_REMOTE_OPEN: Amqp1Connection._on_begin,  # noqa: SLF001 - same
    Event.SESSION_REMOTE_CLOSE: Amqp1Connection._on_session_end,  # noqa: SLF001 - same
    Event.LINK_REMOTE_OPEN: Amqp1Connection._on_attach,  # noqa: SLF001 - same
    Event.LINK_FLOW: Amqp1Connection._on_flow,  # noqa: SLF001 - same
    Event.LINK_REMOTE_CLOSE: Amqp1Connection._on_detach,  # noqa: SLF001 - same
    Event.LINK_REMOTE_DETACH: Amqp1Connection._on_detach,  # noqa: SLF001 - same
    Event.TRANSPORT_ERROR: Amqp1Connection._on_error,  # noqa: SLF001 - same
}


def _link_name(queue: str) -> str:
    """A name that no other attach has: with a known one Qpid ends the link that has it (L14)."""
    return f"ackq-{queue}-{uuid.uuid4().hex}"


def _ask_for_queue(end: Terminus) -> None:
    """Asks for a queue, not a topic; one of an address of Artemis has the address's type."""
    if _OF_ADDRESS not in end.address:
        end.capabilities.put_symbol(symbol("queue"))


def _offered(end: Terminus) -> Sequence[str]:
    """The capabilities with which the broker answered an attach."""
    end.capabilities.rewind()
    found = end.capabilities.get_object() if end.capabilities.next() else None
    return getattr(found, "elements", None) or ([] if found is None else [found])


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def connect(address: Amqp1Address, name: str, place: str) -> Amqp1Connection:
    """Makes an opened connection, with TLS and SASL. Raises CutError."""
    connection: Amqp1Connection | None = None
    try:
        context = address.tls.context() if address.secure else None
        connection = Amqp1Connection(address, name, place)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_S):
            await loop.create_connection(
                lambda: connection,
                address.host,
                address.port,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_S if context else None,
            )
        await connection.opened()
    except BaseException as error:
        if connection is not None:
            await connection.close()
        if isinstance(error, CutError):
            raise
        if isinstance(error, Exception):
            raise cut_of(address, error, place) from None
        raise
    return connection
