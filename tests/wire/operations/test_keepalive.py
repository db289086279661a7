"""A vanished peer does not end its streams: each side pings the other."""

import signal
import subprocess
import sys
from contextlib import closing

import pytest

from ackq import limits
from ackq.client import Admin, Channel, Publisher, close_channels
from ackq.client.connection import grpc_channels
from ackq_broker import server
from tests.eventually import SOON_S, eventually
from tests.fakes.faults import DIRECTIONS
from tests.fakes.raw_client import Client
from tests.fakes.relay import Relay
from tests.wire.in_process import broker_here
from tests.wire.operations.processes import environment

# The size of an HTTP/2 ping frame.
PING_BYTES = 17

# Opens a stage with one row, and prints when the broker has it on disk.
VANISHING = """
import sys, threading
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import Client, stage_requests

def requests():
    row = {"rows": 1}, encoded(body=[b"x"], routing_key="q")
    yield from stage_requests(row, stage_id=b"s" * 16, writer="w", run_id="r")
    threading.Event().wait()

with Client(sys.argv[1]) as client:
    call = client.publishing.Stage(requests())
    assert next(call).stored.rows == 1
    print("stored", flush=True)
    threading.Event().wait()
"""


def test_a_stage_of_a_vanished_client_gives_its_room_back(tmp_path, monkeypatch):
    """K3: the stage of a client that vanished without closing its connection is dropped."""
    waits = [f"grpc.{name}_ms" for name in ("keepalive_timeout", "http2.ping_timeout")]
    asked = dict(server._OPTIONS)
    assert all(asked[name] == limits.HEARTBEAT_MS for name in [*waits, "grpc.keepalive_time_ms"])
    # Fast to ping, and slow enough to give up that no live client on a busy machine is lost.
    quick = asked | dict.fromkeys(waits, 4000) | {"grpc.keepalive_time_ms": 1000}
    monkeypatch.setattr(server, "_OPTIONS", tuple(quick.items()))
    with broker_here(tmp_path) as endpoint, Client(endpoint) as client:
        client.declare()
        program = [sys.executable, "-c", VANISHING, endpoint]
        with subprocess.Popen(program, stdout=subprocess.PIPE, env=environment()) as vanishing:
            assert vanishing.stdout.readline() == b"stored\n"
            assert client.queue().staged == 1
            # Like a host that lost its network: the connection stays open, and nobody answers.
            vanishing.send_signal(signal.SIGSTOP)
            eventually("the stage's end", lambda: not client.queue().staged)
            vanishing.kill()


def test_a_client_that_only_waits_goes_on_asking(broker, monkeypatch):
    """P10: a client that sends nothing, as while blocked, pings on to notice a dead network."""
    quick = dict(grpc_channels._OPTIONS) | {"grpc.keepalive_time_ms": 100}
    monkeypatch.setattr(grpc_channels, "_OPTIONS", tuple(quick.items()))
    with Admin(broker.endpoint) as admin:
        admin.declare_queue("orders")
    with (
        closing(Relay(broker.endpoint)) as relay,
        Publisher(relay.endpoint, routing_key="orders") as publisher,
    ):
        publisher.publish("opens the stream").result(SOON_S)
        before = relay.passed["to_broker"]
        # By default gRPC would ping twice without data, and then once a minute.
        least = before + 6 * PING_BYTES
        eventually("six pings", lambda: relay.passed["to_broker"] >= least)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_channel_leaves_a_silent_connection(tmp_path, monkeypatch, direction):
    """C12, C17: a channel on a silent connection misses heartbeats and uses another connection.

    It is renewed whichever side misses them, long before gRPC knows that the connection is dead.
    """
    monkeypatch.setattr(limits, "HEARTBEAT_MS", 2_000)
    monkeypatch.setattr(limits, "HEARTBEAT_SEND_MS", 500)
    with (
        broker_here(tmp_path) as endpoint,
        closing(Relay(endpoint)) as relay,
        Admin(endpoint) as admin,
        Publisher(endpoint, routing_key="orders") as publisher,
    ):
        admin.declare_queue("orders")
        with Channel(relay.endpoint, reconnect_timeout_ms=60_000) as channel:
            consumer = channel.consume("orders", mode="client")
            relay.half_open(direction)
            accepted = False
            while not accepted:
                publisher.publish("a").result(SOON_S)
                accepted = consumer.receive(SOON_S).accept().exception(SOON_S) is None
        assert relay.accepted > 1
        close_channels()
