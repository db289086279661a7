"""The shortest synced request on this machine: a message, an append, a sync, an answer.

Invariant: a request is answered after its bytes were appended to a file and `fdatasync` returned.
The server is a separate process on loopback TCP that does nothing else: no broker can be faster for
a request that waits for the previous one.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cpu
import harness

NAME = "synced round trip"


@contextlib.contextmanager
def running():
    """The port of a running server."""
    with tempfile.TemporaryDirectory(prefix="ackq-benchmark-sync-") as folder:
        command = [sys.executable, __file__, str(Path(folder, "log"))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            cpu.SERVERS[NAME] = server.pid
            assert server.stdout is not None
            try:
                yield int(server.stdout.readline())
            finally:
                server.terminate()
                del cpu.SERVERS[NAME]


def each(port, count, body, times_s):
    """Makes round trips, one after another; adds the seconds of each."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(len(body).to_bytes(4))
        with harness.clocked(count, NAME) as found:
            for _ in range(count):
                started = time.perf_counter()
                connection.sendall(body)
                assert connection.recv(1)
                times_s.append(time.perf_counter() - started)
    return found[0]


def serve(path):
    """Answers one connection after another, until it is ended."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _answer(connection, log, int.from_bytes(connection.recv(4)))


def _answer(connection, log, size):
    while body := connection.recv(size, socket.MSG_WAITALL):
        os.write(log, body)
        os.fdatasync(log)
        connection.sendall(b"\x01")


if __name__ == "__main__":
    serve(sys.argv[1])
