"""The reader process identifies itself to the JVM, by port and secret or by path."""

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from ackq.spark.reader_process import connect

SECRET = {"PYTHON_WORKER_FACTORY_SECRET": "s3cret"}


def connected(environ, listening, answer=b""):
    """Connects a reader process; returns the secret, the pid and the next bytes it read."""
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(connect, environ)
        theirs, _ = listening.accept()
        with theirs, theirs.makefile("rb") as reading:
            secret = read_text(reading) if answer else b""
            theirs.sendall(struct.pack("!i", len(answer)) + answer if answer else b"")
            with stream.result(10) as ours:
                (pid,) = struct.unpack("!i", reading.read(4))
                theirs.sendall(b"ask")
                return secret, pid, ours.read(3)


def read_text(stream):
    (length,) = struct.unpack("!i", stream.read(4))
    return stream.read(length)


def test_by_path_it_shows_its_pid_alone(tmp_path):
    """By a socket path the process sends its pid without a secret."""
    path = str(tmp_path / "jvm.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        environ = {"PYTHON_WORKER_FACTORY_SOCK_PATH": path}
        assert connected(environ, listening) == (b"", os.getpid(), b"ask")


def test_a_jvm_that_refuses_the_secret_is_no_jvm_of_ours():
    """By port the process shows a secret; a refused one ends it at once."""
    with socket.create_server(("127.0.0.1", 0)) as jvm:
        environ = {"PYTHON_WORKER_FACTORY_PORT": str(jvm.getsockname()[1]), **SECRET}
        assert connected(environ, jvm, answer=b"ok") == (b"s3cret", os.getpid(), b"ask")
        with pytest.raises(ConnectionRefusedError, match="secret"):
            connected(environ, jvm, answer=b"err")
