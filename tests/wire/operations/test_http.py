"""The HTTP server of a broker process: optional, next to gRPC, and safe from other sites."""

import contextlib
import http.client
import os
import signal
import socket

import pytest

import ackq_broker
from ackq import limits
from tests.eventually import SOON_S
from tests.fakes import machine
from tests.fakes.raw_client import Client
from tests.wire.asking import asked
from tests.wire.operations.processes import ANYWHERE, serving


def ask(endpoint, path, method="GET", **headers):
    """Status and text of an answer."""
    status, _, text = asked(endpoint, path, method=method, **headers)
    return status, text


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker that closes no HTTP connection because it is idle, as long as a test takes."""
    folder = tmp_path_factory.mktemp("http")
    env = machine.with_limits(folder, {"FIRST_REQUEST_MS": 1_000_000})
    with ackq_broker.embedded(folder / "data", http=True, env=env) as running:
        yield running


def test_live_and_ready(broker):
    """M1: `/livez` and `/readyz` answer with one word, and other paths with 404."""
    for word in ("live", "ready"):
        assert ask(broker.http_endpoint, f"/{word}z") == (200, f"{word}\n")
    assert ask(broker.http_endpoint, "/nothing")[0] == 404


def test_the_port_in_a_file(tmp_path):
    """M1: port 0 binds a free port, which the ready line and a file name."""
    http = ("--http", "127.0.0.1:0", "--http-port-file", tmp_path / "port")
    with serving(tmp_path / "data", *ANYWHERE, *http) as (process, _, line):
        port = (tmp_path / "port").read_text().strip()
        assert line.endswith(f" http=127.0.0.1:{port}\n")
        assert ask(f"127.0.0.1:{port}", "/livez")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON_S) == 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[(host, 200) for host in ("localhost", "LOCALHOST:9", "127.0.0.1:1", "[::1]:80")],
        *[(host, 421) for host in ("evil.example:80", "", "[", "localhost.evil.example")],
    ],
)
def test_names_of_this_machine(broker, host, status):
    """M1: names of this machine are served with any port; others refused, against DNS rebinding."""
    assert ask(broker.http_endpoint, "/livez", Host=host)[0] == status


@pytest.mark.parametrize(
    ("header", "text"),
    [
        *[("Origin", text) for text in ("http://evil.example", "http://[", "null")],
        *[("Sec-Fetch-Site", text) for text in ("cross-site", "same-site")],
    ],
)
def test_a_change_from_another_site_is_refused(broker, header, text):
    """M1: a change that a browser sends from another site is refused by its headers."""
    assert ask(broker.http_endpoint, "/livez", "POST", **{header: text})[0] == 403


def test_connections_have_a_bound(broker):
    """M1, I6: connections above the bounds per address and in total are cut; others are served."""
    host, port = broker.http_endpoint.split(":")
    each = limits.MAX_HTTP_CONNECTIONS_EACH
    addresses = [f"127.0.0.{number + 2}" for number in range(limits.MAX_HTTP_CONNECTIONS // each)]
    crowd = []

    def connected(address):
        return socket.create_connection((host, int(port)), source_address=(address, 0))

    def served():
        """Whether the newest connection is answered, so that the limit is not exceeded yet."""
        crowd[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return crowd[-1].recv(12) == b"HTTP/1.1 200"

    try:
        for address in addresses:
            crowd.extend(connected(address) for _ in range(each))
            assert served()
            with connected(address) as beyond, contextlib.suppress(ConnectionResetError):
                beyond.settimeout(SOON_S)
                assert beyond.recv(1) == b""
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            ask(broker.http_endpoint, "/livez")
        with Client(broker.endpoint) as client:
            client.declare()
            client.publish(b"a")
    finally:
        for connection in crowd:
            connection.close()


def test_it_ends_with_the_broker(tmp_path):
    """M1: an open connection or a half-sent request does not delay the broker's stop."""
    env = machine.with_limits(tmp_path, {"FIRST_REQUEST_MS": 1_000_000})
    with ackq_broker.embedded(tmp_path / "data", http=True, env=env) as running:
        host, port = running.http_endpoint.split(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"GET /livez HTTP/1.1\r\nHost:")
            os.kill(running.pid, signal.SIGTERM)
            assert running.wait_dead(SOON_S)


def test_what_is_no_request_is_not_logged(broker):
    """M3: invalid HTTP requests are not logged, as any stranger could fill the log with them."""
    host, _, port = broker.http_endpoint.rpartition(":")
    for sent in (b"GET \xff /\r\n\r\n", b"\0\0\0", b"GET / HTTP/1.1\r\nHost: \r\n: \r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=SOON_S) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    assert ask(broker.http_endpoint, "/livez")[0] == 200
    assert "Traceback" not in broker.log_file.read_text()
