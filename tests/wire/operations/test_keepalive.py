"""A client whose host vanished sends no end of stream: the broker asks it for signs of life."""

import signal
import subprocess
import sys
import time

from ackq import limits
from ackq_broker.service import server
from tests.fakes.raw_client import Client
from tests.wire.in_process import broker_here
from tests.wire.operations.processes import environment

# Opens a stage with one row, and says when the broker has that on disk.
VANISHING = """
import sys, threading
from ackq.v1 import publishing_pb2 as pb
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import Client

def requests():
    opening = pb.StageOpen(stage_id=b"s" * 16, writer="w", run_id="r")
    yield pb.StageRequest(header=pb.StageHeader(open=opening))
    data = pb.StageHeader(data=pb.StageData(rows=1))
    yield pb.StageRequest(header=data, block=encoded(body=[b"x"], routing_key="q"))
    threading.Event().wait()

with Client(sys.argv[1]) as client:
    call = client.publishing.Stage(requests())
    assert next(call).stored.rows == 1
    print("stored", flush=True)
    threading.Event().wait()
"""


def test_a_stage_of_a_vanished_client_gives_its_room_back(tmp_path, monkeypatch):
    """K3: an upload whose client is there no more, without a word, is dropped like any other."""
    waits = (
        "grpc.keepalive_time_ms",
        "grpc.keepalive_timeout_ms",
        "grpc.http2.ping_timeout_ms",
    )
    asked = dict(server._OPTIONS)
    assert all(asked[name] == limits.HEARTBEAT_MS for name in waits)
    # Quick to ask, and slow enough to give up that a busy machine loses no client that lives.
    quick = asked | dict.fromkeys(waits, 4000) | {"grpc.keepalive_time_ms": 1000}
    monkeypatch.setattr(server, "_OPTIONS", tuple(quick.items()))

    def vanish(endpoint):
        with (
            Client(endpoint) as client,
            subprocess.Popen(
                [sys.executable, "-c", VANISHING, endpoint],
                stdout=subprocess.PIPE,
                env=environment(),
            ) as vanishing,
        ):
            client.declare()
            assert vanishing.stdout.readline() == b"stored\n"
            staged = client.queue().staged
            # As a host that lost its network: the connection stands, nobody answers on it.
            vanishing.send_signal(signal.SIGSTOP)
            while client.queue().staged:
                time.sleep(0.05)
            vanishing.kill()
        return staged

    with broker_here(tmp_path) as endpoint:
        assert vanish(endpoint) == 1
