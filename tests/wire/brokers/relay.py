"""A relay in front of a broker, so that a scenario can break or silence a client's connection.

Invariant: while nobody asks for anything it forwards every byte, in order, in both directions.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_CHUNK_BYTES = 1 << 16
# Closing sends a reset instead of the last bytes and an orderly end.
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Listens on a port of its own and forwards each connection to `endpoint`."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._target = (host, int(port))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._cut = False
        self._open = {"to_broker": threading.Event(), "to_client": threading.Event()}
        self.release()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def hold(self, *directions: str) -> None:
        """From here on nothing more gets through "to_broker", "to_client"; none given: both."""
        for direction in directions or self._open:
            self._open[direction].clear()

    def release(self) -> None:
        """Everything gets through again, what was held back first."""
        for gate in self._open.values():
            gate.set()

    def cut(self) -> None:
        """Resets what is connected, drops what was held back, and takes no new connection."""
        with self._lock:
            self._cut = True
            sockets = [self._listener, *self._sockets]
        for each in sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            # Wakes the thread that reads it; a listener wakes by the same call.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RD)
            each.close()
        self.release()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
                with self._lock:
                    self._sockets += [client, broker]
                    if self._cut:
                        client.close()
                        broker.close()
                        return
                for source, sink, gate in (
                    (client, broker, self._open["to_broker"]),
                    (broker, client, self._open["to_client"]),
                ):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(
                        target=self._forward, args=(source, sink, gate), name="relay", daemon=True
                    ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
        # A reset ends the stream like any other end: the far side is told.
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                gate.wait()
                if self._cut:
                    return
                sink.sendall(data)
        gate.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
