"""The relay itself: each fault strikes as specified, at its byte, and a seed replays."""

import socket
import threading
import time
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest

from tests.eventually import SOON_S, eventually
from tests.fakes.faults import DIRECTIONS, KINDS, Fault, Schedule
from tests.fakes.relay import Relay


class Server:
    """A server that keeps the bytes of each connection, and how it ended, if it has."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self.connections:
            each.end.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                end, _ = self._listener.accept()
                self.connections.append(SimpleNamespace(end=end, came=b"", ended=None))
                threading.Thread(target=read, args=self.connections[-1:], daemon=True).start()

    def wait(self, done):
        eventually("bytes or an end", lambda: done(self.connections), every_s=0.005)


def read(connection):
    """Reads a connection to its end."""
    ended = "end"
    try:
        while data := connection.end.recv(1 << 16):
            connection.came += data
    except OSError:
        ended = "reset"
    connection.ended = ended


@pytest.fixture
def server():
    with closing(Server()) as standing:
        yield standing


@pytest.fixture
def network(server):
    """Makes a relay whose connections have these faults, a list for each."""
    made = []

    def make(*faults):
        of = dict(enumerate(faults, 1))
        made.append(Relay(server.endpoint, lambda number: list(of.get(number, ()))))
        return made[-1]

    yield make
    for each in made:
        each.close()


def connect(relay):
    end = socket.create_connection(("127.0.0.1", relay.port))
    end.settimeout(SOON_S)
    return closing(end)


def read_to_end(end):
    """The bytes until the end, and whether that is a reset."""
    came = b""
    try:
        while data := end.recv(1 << 16):
            came += data
    except ConnectionResetError:
        return came, True
    return came, False


def test_without_faults_every_byte_passes_in_order(server, network):
    """A relay without faults passes both directions, and the end of one leaves the other open."""
    sent = bytes(range(256)) * 4_000
    with connect(network()) as end:
        end.sendall(sent)
        end.shutdown(socket.SHUT_WR)
        server.wait(lambda made: made and made[0].came == sent and made[0].ended == "end")
        server.connections[0].end.sendall(sent)
        server.connections[0].end.shutdown(socket.SHUT_WR)
        assert read_to_end(end) == (sent, False)


@pytest.mark.parametrize(
    ("kind", "came", "ended"),
    [("reset", b"", "reset"), ("end", b"", "end"), ("truncate", b"ab", "end")],
)
def test_a_cut_strikes_at_its_byte(server, network, kind, came, ended):
    """A cut strikes between chunks, or in the middle of one; both ends see it."""
    relay = network([Fault(kind, "to_broker", 2)])
    with connect(relay) as end:
        end.sendall(b"abcd")
        server.wait(lambda made: made and made[0].ended)
        assert (server.connections[0].came, server.connections[0].ended) == (came, ended)
        assert read_to_end(end) == (b"", ended == "reset")
    assert relay.struck == [(1, Fault(kind, "to_broker", 2))]
    with connect(relay) as end:
        end.sendall(b"next")
        server.wait(lambda made: len(made) == 2 and made[1].came == b"next")


def test_half_open_swallows_one_direction_and_its_end(server, network):
    """A half-open connection hides even the client's end; the other direction is sound."""
    relay = network([Fault("half-open", "to_broker", 2)])
    with connect(relay) as end:
        end.sendall(b"abcd")
        server.wait(lambda made: made and made[0].came == b"ab")
        server.connections[0].end.sendall(b"still here")
        assert end.recv(100) == b"still here"
    with connect(relay) as end:  # the relay has seen the end of the first by now
        end.sendall(b"x")
        server.wait(lambda made: len(made) == 2 and made[1].came == b"x")
    assert (server.connections[0].came, server.connections[0].ended) == (b"ab", None)


def test_an_older_connection_brings_its_bytes_after_a_newer_one(server, network):
    """Bytes of an overtaken connection arrive once, after its client has seen its end."""
    relay = network([Fault("overtake", "to_broker", 2)], [])
    with connect(relay) as old:
        old.sendall(b"ab")
        server.wait(lambda made: made and made[0].came == b"ab")
        old.sendall(b"late")
        assert read_to_end(old) == (b"", False)
    assert server.connections[0].came == b"ab"
    with connect(relay) as new:
        new.sendall(b"n" * 2_000)
        server.wait(lambda made: made[0].ended == "end" and len(made[1].came) == 2_000)
        assert server.connections[0].came == b"ablate"
        assert server.connections[1].came == b"n" * 2_000


@pytest.mark.parametrize(
    ("fault", "least_s"),
    [(Fault("delay", "to_client", 0, 0.4), 0.2), (Fault("throttle", "to_client", 0, 1_000), 0.2)],
)
def test_a_slow_network_is_slow_and_whole(server, network, fault, least_s):
    """A slow relay delays bytes and loses none, and is no slower once it is calm."""
    relay = network([fault])
    with connect(relay) as end:
        end.sendall(b"x")
        server.wait(lambda made: made and made[0].came)
        begun = time.monotonic()
        server.connections[0].end.sendall(b"a" * 300)
        came = b""
        while len(came) < 300:
            came += end.recv(300)
        assert time.monotonic() - begun >= least_s
        relay.calm()
        server.connections[0].end.sendall(b"b" * 1_000_000)
        while len(came) < 1_000_300:
            came += end.recv(1 << 16)


def test_the_same_seed_is_the_same_schedule():
    """A seed's schedule does not depend on other connections; another seed has another one."""
    first, again = Schedule(7), Schedule(7)
    plans = [first(number) for number in range(1, 400)]
    assert [again(number) for number in reversed(range(1, 400))] == plans[::-1]
    assert [Schedule(8)(number) for number in range(1, 400)] != plans
    drawn = {(each.kind, each.direction) for plan in plans for each in plan}
    assert drawn >= {(kind, "to_broker") for kind in KINDS}
    assert drawn >= {(kind, way) for kind in set(KINDS) - {"overtake"} for way in DIRECTIONS}
