"""A relay in front of a broker that may die: connections are cut, held back and let through again.

Invariant: while nobody asks for anything it forwards every byte, in order, in both directions; a
connection that was cut brings nothing more.
"""

import socket
import struct
import threading
from contextlib import suppress

_CHUNK_BYTES = 1 << 16
# Closing sends a reset instead of the last bytes and an orderly end.
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Listens on a port of its own for as long as it lives, and forwards to `endpoint`."""

    def __init__(self, endpoint):
        host, _, port = endpoint.rpartition(":")
        self._broker = (host, int(port))
        self._lock = threading.Lock()
        self._ends = []
        self._healthy = True
        self._open = {"to_broker": threading.Event(), "to_client": threading.Event()}
        self.release()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def cut(self):
        """Resets what is connected, and takes no connection until `heal`."""
        with self._lock:
            self._healthy = False
            ends, self._ends = self._ends, []
        _reset(*ends)

    def heal(self):
        """Takes connections again."""
        with self._lock:
            self._healthy = True

    def hold(self, *directions):
        """From here on nothing gets through "to_broker", "to_client"; none given: neither."""
        for direction in directions or self._open:
            self._open[direction].clear()

    def release(self):
        """Everything gets through again, what was held back first."""
        for gate in self._open.values():
            gate.set()

    def close(self):
        """The end: nothing is connected any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self.release()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker)
            except OSError:  # it is dead
                client.close()
                continue
            with self._lock:
                healthy = self._healthy
                if healthy:
                    self._ends += (client, broker)
            if not healthy:
                _reset(client, broker)
                continue
            for source, sink, direction in (
                (client, broker, "to_broker"),
                (broker, client, "to_client"),
            ):
                way = (source, sink, self._open[direction])
                threading.Thread(target=_forward, args=way, name="relay", daemon=True).start()


def _forward(source, sink, gate):
    # A reset ends the stream like any other end: the far side is told.
    with suppress(OSError):
        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := source.recv(_CHUNK_BYTES):
            gate.wait()
            sink.sendall(data)
    gate.wait()
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _reset(*ends):
    for each in ends:
        with suppress(OSError):  # it ended by itself
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            # Wakes the thread that reads it.
            each.shutdown(socket.SHUT_RD)
        each.close()
