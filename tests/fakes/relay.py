"""A relay in front of a broker that may die: connections are cut, held back and let through again.

Invariant: what is forwarded is in order, and a connection that was cut brings nothing more; what
its far end had read by then, it has.
"""

import socket
import threading
from contextlib import suppress

_CHUNK_BYTES = 1 << 16


class Relay:
    """Listens on a port of its own for as long as it lives, and forwards to `endpoint`."""

    def __init__(self, endpoint):
        host, _, port = endpoint.rpartition(":")
        self._broker = (host, int(port))
        self._lock = threading.Lock()
        self._pairs = []
        self._healthy = True
        self._through = threading.Event()
        self._through.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def cut(self):
        """Breaks what is connected, and takes no connection until `heal`."""
        with self._lock:
            self._healthy = False
            pairs, self._pairs = self._pairs, []
        for each in pairs:
            _shut(*each)

    def heal(self):
        """Takes connections again."""
        with self._lock:
            self._healthy = True

    def hold(self):
        """Both ends go on, and hear nothing of each other until `release`."""
        self._through.clear()

    def release(self):
        """What was held back gets through, late."""
        self._through.set()

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
                    self._pairs.append((client, broker))
            if not healthy:
                _shut(client, broker)
                continue
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(
                    target=self._forward, args=(source, sink), name="relay", daemon=True
                ).start()

    def _forward(self, source, sink):
        with suppress(OSError):  # cut, or an end that died
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(_CHUNK_BYTES):
                self._through.wait()
                sink.sendall(data)
        self._through.wait()
        _shut(source, sink)


def _shut(*ends):
    for each in ends:
        with suppress(OSError):  # the other direction was first
            each.shutdown(socket.SHUT_RDWR)
        each.close()
