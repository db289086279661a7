"""Spark's reader process of a streaming query, which connects to the JVM before it imports.

Spark waits 10 s for the connection, which no setting changes, and then fails the query: "Python
worker failed to connect back". Spark's own module imports pyspark and pyarrow before it connects,
which takes a second of CPU, and on a loaded machine ten times as long. `worker_python` runs this
module instead.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from typing import IO, Final, cast

_INT: Final = struct.Struct("!i")


def main() -> None:
    """Answers the requests of the JVM that started this process until the JVM ends them."""
    with connect(os.environ) as stream:
        from pyspark.sql.streaming import (  # noqa: PLC0415 - after the connection
            python_streaming_source_runner as runner,
        )

        runner.main(stream, stream)


def connect(environ: Mapping[str, str]) -> IO[bytes]:
    """Connects to the JVM and identifies this process; returns the stream.

    Args:
        environ: The environment, with the path of the JVM's socket, or its port and a secret.

    Raises:
        OSError: Nobody listens on the socket or port, or the secret is wrong.
    """
    path = environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    sock = _by_path(path) if path else _by_port(environ)
    size = int(environ.get("SPARK_BUFFER_SIZE", "65536"))
    stream = cast("IO[bytes]", sock.makefile("rwb", size))
    sock.close()  # the stream keeps the connection
    try:
        if not path:
            _authenticate(stream, environ["PYTHON_WORKER_FACTORY_SECRET"].encode())
        stream.write(_INT.pack(os.getpid()))
        stream.flush()
    except OSError:
        stream.close()
        raise
    return stream


def _by_path(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock


def _by_port(environ: Mapping[str, str]) -> socket.socket:
    prefers_ipv6 = environ.get("SPARK_PREFER_IPV6", "").lower() == "true"
    port = int(environ["PYTHON_WORKER_FACTORY_PORT"])
    return socket.create_connection(("::1" if prefers_ipv6 else "127.0.0.1", port))


def _authenticate(stream: IO[bytes], secret: bytes) -> None:
    stream.write(_INT.pack(len(secret)) + secret)
    stream.flush()
    (length,) = _INT.unpack(stream.read(_INT.size))
    if stream.read(length) != b"ok":
        raise ConnectionRefusedError("The JVM that started this process refuses its secret.")


if __name__ == "__main__":
    main()
