"""A network between clients and a broker: forwards, cuts and holds, on request or by schedule.

Invariant: without a request and before any fault has struck, it forwards every byte, in order, in
both directions; a connection that was cut brings nothing more.
"""

import asyncio
import random
import socket
import struct
import threading
from contextlib import suppress

from tests.eventually import SOON_S
from tests.fakes.faults import DIRECTIONS

_CHUNK_BYTES = 1 << 16
# Closing sends a reset instead of the last bytes and an orderly end.
_RESET = struct.pack("ii", 1, 0)
_ENDS = {"reset", "end", "truncate"}
# Number of pieces that a throttled direction forwards in a second.
_PIECES = 20
# An overtaken connection is closed to its client this long after the fault, with the data received
# until then; it goes on when a newer one has brought the broker this many bytes.
_OVERTAKEN_S = 0.2
_AHEAD_BYTES = 1_000


class Relay:
    """Listens on a port of its own until it is closed, and forwards to `endpoint`.

    Args:
        endpoint: The broker's `host:port`.
        schedule: Returns the faults of a connection by its number, counted from 1 (`Schedule`).

    Attributes:
        endpoint: The address that clients connect to; `port` is its port.
        accepted: Number of connections so far.
        passed: Bytes received, by direction.
        struck: The faults so far, each with its connection's number, in order.
    """

    def __init__(self, endpoint, schedule=None):
        host, _, port = endpoint.rpartition(":")
        self._broker = (host, int(port))
        self.schedule = schedule
        self.struck = []
        self.passed = dict.fromkeys(DIRECTIONS, 0)
        self._connections = {}  # with their tasks
        self.accepted = 0
        self.healthy = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self.port}"
        self._loop = asyncio.new_event_loop()
        self.open = {direction: asyncio.Event() for direction in DIRECTIONS}
        self.calmed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()
        self.release()

    # --- called by tests, from any thread ---

    def cut(self):
        """Resets all connections, and accepts none until `heal`."""
        self._do(self._cut())

    def heal(self):
        """Accepts connections again."""
        self.healthy = True

    def lead_to(self, endpoint):
        """Leads new connections to another broker, as a load balancer does."""
        host, _, port = endpoint.rpartition(":")
        self._broker = (host, int(port))

    def hold(self, *directions):
        """Holds back the directions "to_broker", "to_client"; none given: both.

        Held data is kept for `release`. So all connections are half-open, and new ones as well.
        """
        self._do(self._set_gates(directions or DIRECTIONS, is_open=False))

    def release(self):
        """Lets everything through again, the data that was held back first."""
        self._do(self._set_gates(DIRECTIONS, is_open=True))

    def half_open(self, *directions):
        """Makes present connections lose the bytes of a direction for good; none given: both.

        No peer is notified, and new connections are sound.
        """
        self._do(self._swallow(directions or DIRECTIONS))

    def calm(self):
        """Ends all faults, also those that slow a connection.

        A half-open connection stays so: its peers have to notice.
        """
        self._do(self._end_faults())

    def close(self):
        """Ends all connections and the relay."""
        if not self._thread.is_alive():
            return
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SOON_S)

    def _do(self, work):
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SOON_S)

    # --- on the relay's thread ---

    def _run(self):
        accepting = self._loop.create_task(self._accept())
        self._loop.run_forever()
        accepting.cancel()
        self._loop.run_until_complete(asyncio.gather(accepting, return_exceptions=True))
        self._listener.close()
        self._loop.close()

    async def _accept(self):
        while True:
            client, _ = await self._loop.sock_accept(self._listener)
            self.accepted += 1
            connection = Connection(self, self.accepted, client)
            task = self._loop.create_task(connection.run(self._broker))
            self._connections[connection] = task
            task.add_done_callback(lambda _, ended=connection: self._connections.pop(ended))

    async def _cut(self):
        self.healthy = False
        tasks = list(self._connections.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set_gates(self, directions, *, is_open):
        for direction in directions:
            gate = self.open[direction]
            gate.set() if is_open else gate.clear()

    async def _swallow(self, directions):
        for each in self._connections:
            each.swallowed.update(directions)

    async def _end_faults(self):
        self.schedule = None
        self.calmed.set()

    # --- for its connections ---

    async def overtaken(self, number):
        """Waits until a newer connection has brought the broker data, or for the calm."""
        while not self.calmed.is_set():
            newer = (each for each in self._connections if each.number > number)
            if any(each.passed["to_broker"] > _AHEAD_BYTES for each in newer):
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self.calmed.wait(), 0.02)


class Connection:
    """One connection of a client, and its counterpart to the broker.

    Attributes:
        number: Counted from 1.
        passed: Bytes received, by direction.
        swallowed: Directions whose bytes are dropped without notice to any peer.
    """

    def __init__(self, relay, number, client):
        self.number = number
        self.passed = dict.fromkeys(DIRECTIONS, 0)
        self._relay = relay
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._faults = relay.schedule(number) if relay.schedule else []
        self._slowing = {direction: [] for direction in DIRECTIONS}  # delay, throttle
        self.swallowed = set()
        self._rng = random.Random(number)

    async def run(self, address):
        """Forwards until both ends have ended, or one fault ends both."""
        broker = socket.socket()
        orderly = False
        try:
            for end in (self._client, broker):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(broker, address)
            if not self._relay.healthy:
                return
            both = [
                self._loop.create_task(self._forward(self._client, broker, "to_broker")),
                self._loop.create_task(self._forward(broker, self._client, "to_client")),
            ]
            try:
                orderly = await self._until_ended(both)
            finally:
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except OSError:  # the broker is dead
            orderly = True
        finally:
            for end in (self._client, broker):
                if not orderly:
                    with suppress(OSError):  # it ended by itself
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()

    async def _until_ended(self, both):
        """Whether the connection ended in an orderly way."""
        pending = both
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                if each.result() is not None:
                    return each.result() != "reset"
        return True

    async def _forward(self, source, sink, direction):
        """Forwards one direction to its end; returns the fault that ends both, if one does."""
        # A reset ends the stream like any other end, which the other side sees.
        with suppress(OSError):
            while data := await self._loop.sock_recv(source, _CHUNK_BYTES):
                for fault in self._due(direction, len(data)):
                    kept = data[: fault.at_bytes - self.passed[direction]]
                    if fault.kind in {"truncate", "half-open"}:
                        await self._pass_on(sink, kept, direction)
                    if fault.kind in _ENDS:
                        return fault.kind
                    if fault.kind == "overtake":
                        await self._be_overtaken(source, sink, data)
                        return None
                    if fault.kind == "half-open":
                        self.swallowed.add(direction)
                    else:
                        self._slowing[direction].append(fault)
                self.passed[direction] += len(data)
                self._relay.passed[direction] += len(data)
                await self._pass_on(sink, data, direction)
        await self._relay.open[direction].wait()
        if direction not in self.swallowed:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
        return None

    def _due(self, direction, size):
        """The faults that strike within the next `size` bytes, in the order of their bytes."""
        if self._relay.calmed.is_set():
            return []
        end = self.passed[direction] + size
        due = [each for each in self._faults if each.direction == direction and each.at_bytes < end]
        self._faults = [each for each in self._faults if each not in due]
        due.sort(key=lambda each: each.at_bytes)
        self._relay.struck += ((self.number, each) for each in due)
        return due

    async def _pass_on(self, sink, data, direction):
        """Sends bytes as slowly as the faults demand; bytes to a closed end are dropped."""
        await self._relay.open[direction].wait()
        if direction in self.swallowed:
            return
        pieces = [data]
        for fault in [] if self._relay.calmed.is_set() else self._slowing[direction]:
            if fault.kind == "delay":
                await asyncio.sleep(fault.amount * self._rng.uniform(0.5, 1.5))
            else:
                size = max(1, int(fault.amount / _PIECES))
                pieces = [data[at : at + size] for at in range(0, len(data), size)]
        for at, piece in enumerate(pieces):
            if at and not self._relay.calmed.is_set():
                await asyncio.sleep(1 / _PIECES)
            try:
                await self._loop.sock_sendall(sink, piece)
            except OSError:
                self.swallowed.add(direction)
                return

    async def _be_overtaken(self, client, broker, data):
        """Closes the client's end, keeps the data that it sent, and forwards it too late."""
        late = [data]
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_OVERTAKEN_S):
                while more := await self._loop.sock_recv(client, _CHUNK_BYTES):
                    late.append(more)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        await self._relay.overtaken(self.number)
        with suppress(OSError):
            await self._loop.sock_sendall(broker, b"".join(late))
            broker.shutdown(socket.SHUT_WR)
