"""An internal failure ends the broker without an answer, with a traceback and an exit status."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

import ackq_broker
from tests.fakes.raw_client import Client
from tests.wire.operations.processes import ANYWHERE, serving

FAULTS = Path(__file__).with_name("faults")
FAILED = 70
# For a broker that polls every second, on a machine that may be busy.
LIMIT_S = 60
IN_APPLY = "ackq_broker.core.state.queue:Queue.place"


def change_for_ever(client):
    """Makes changes that background work follows, until the broker is dead."""
    while True:
        client.declare("r")
        client.delete("r")


class Failing(SimpleNamespace):
    """A broker process that fails in one function once the file `armed` exists."""

    def check_failed(self):
        """Waits for the end of the process, which has told why in its log."""
        assert self.process.wait(LIMIT_S) == FAILED
        log = self.data.with_suffix(".log").read_text()
        assert log.count("Traceback") == 1
        assert "MemoryError: injected" in log


@pytest.fixture
def failing(tmp_path, request):
    data, armed = tmp_path / "data", tmp_path / "armed"
    path = os.pathsep.join([str(FAULTS), *filter(None, sys.path)])
    fault = {"PYTHONPATH": path, "ACKQ_FAIL_AT": request.param, "ACKQ_FAIL_FILE": str(armed)}
    with serving(data, *ANYWHERE, **fault) as (process, (endpoint,), _), Client(endpoint) as client:
        client.declare()
        yield Failing(process=process, client=client, data=data, armed=armed)


@pytest.mark.parametrize(
    "failing",
    [IN_APPLY, "ackq_broker.journal.journal:Journal.append", "ackq_broker.core.core:Core.decide"],
    indirect=True,
)
def test_a_failure_in_a_decision_ends_the_process(failing):
    """I2: a publish that failed halfway is never confirmed until it is in its queue, also when
    repeated; earlier confirmed messages exist after the restart.
    """
    identity = b"p" * 16
    with failing.client.publisher(identity) as stream:
        stream.publish(1, b"a", routing_key="q")
        assert stream.confirmed(1) == {1}
        failing.armed.touch()
        stream.publish(2, b"b", routing_key="q")
        with pytest.raises(grpc.RpcError) as failed:
            stream.confirmed(1)
        # A disconnect, not an answer of the broker.
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    failing.check_failed()
    with (
        ackq_broker.embedded(failing.data) as again,
        Client(again.endpoint) as client,
        client.publisher(identity, resume=True) as stream,
    ):
        assert client.browse()[0] == [b"a"]
        stream.publish(2, b"b", routing_key="q")
        assert stream.confirmed(1) == {2}
        assert client.browse()[0] == [b"a", b"b"]


@pytest.mark.parametrize(
    "failing",
    [
        # The poll of the disk, a tick, and a turn of the dispatcher.
        "ackq_broker.engine.alarms:DiskAlarm.poll",
        "ackq_broker.engine.timer:TickTimer._set_timer",
        "ackq_broker.service.consuming.dispatcher:ConsumerDispatcher._turn",
    ],
    indirect=True,
)
def test_a_failure_in_the_background_ends_the_process(failing):
    """I2, I6: a failed timer or background task ends the process, which would else look sound."""
    failing.client.publish(b"a")
    failing.armed.touch()
    with pytest.raises(grpc.RpcError):
        change_for_ever(failing.client)
    failing.check_failed()
    with ackq_broker.embedded(failing.data) as again, Client(again.endpoint) as client:
        assert client.browse()[0] == [b"a"]
