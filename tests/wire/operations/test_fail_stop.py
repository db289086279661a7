"""An internal failure ends the broker without an answer, with a traceback and an exit status."""

import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

import ackq_broker
from tests.fakes.raw_client import Client
from tests.wire.operations.processes import command, environment

FAULTS = Path(__file__).with_name("faults")
FAILED = 70
# For a broker that polls every second, on a machine that may be busy.
LIMIT_S = 60
IN_APPLY = "ackq_broker.core.state.queue:Queue.place"


class Serving:
    """A broker process that fails in one function after `arm` was called."""

    def __init__(self, folder, fail_at):
        self.data, self._armed = folder / "data", folder / "armed"
        self._port_file, self._log = folder / "port", folder / "log"
        path = os.pathsep.join([str(FAULTS), *filter(None, sys.path)])
        arguments = ("--data", self.data, "--listen", "127.0.0.1:0", "--port-file", self._port_file)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command("serve", *arguments),
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(
                    PYTHONPATH=path, ACKQ_FAIL_AT=fail_at, ACKQ_FAIL_FILE=str(self._armed)
                ),
            )
        assert b"listening" in self._process.stdout.readline()
        self.endpoint = f"127.0.0.1:{self._port_file.read_text().strip()}"

    def arm(self):
        self._armed.touch()

    def exit_status(self):
        return self._process.wait(LIMIT_S)

    def log(self):
        return self._log.read_text()

    def end(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def change_for_ever(client):
    """Makes changes that background work follows, until the broker is dead."""
    while True:
        client.declare("r")
        client.delete("r")


@pytest.fixture
def serving(tmp_path, request):
    broker = Serving(tmp_path, request.param)
    yield broker
    broker.end()


@pytest.mark.parametrize(
    "serving",
    [IN_APPLY, "ackq_broker.journal.journal:Journal.append", "ackq_broker.core.core:Core.decide"],
    indirect=True,
)
def test_a_failure_in_a_decision_ends_the_process(serving):
    """I2: a publish that failed halfway is never confirmed until it is in its queue, also when
    repeated; earlier confirmed messages exist after the restart.
    """
    identity = b"p" * 16
    with Client(serving.endpoint) as client:
        client.declare()
        with client.publisher(identity) as stream:
            stream.publish(1, b"a", routing_key="q")
            assert stream.confirmed(1) == {1}
            serving.arm()
            stream.publish(2, b"b", routing_key="q")
            with pytest.raises(grpc.RpcError) as failed:
                stream.confirmed(1)
            # A disconnect, not an answer of the broker.
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert serving.exit_status() == FAILED
    assert serving.log().count("Traceback") == 1
    assert "MemoryError: injected" in serving.log()
    with (
        ackq_broker.embedded(serving.data) as again,
        Client(again.endpoint) as client,
        client.publisher(identity, resume=True) as stream,
    ):
        assert client.browse()[0] == [b"a"]
        stream.publish(2, b"b", routing_key="q")
        assert stream.confirmed(1) == {2}
        assert client.browse()[0] == [b"a", b"b"]


@pytest.mark.parametrize(
    "serving",
    [
        # The poll of the disk, a tick, and a turn of the dispatcher.
        "ackq_broker.engine.alarms:DiskAlarm.poll",
        "ackq_broker.engine.timer:TickTimer._set_timer",
        "ackq_broker.service.consuming.dispatcher:ConsumerDispatcher._turn",
    ],
    indirect=True,
)
def test_a_failure_in_the_background_ends_the_process(serving):
    """I2, I6: a failed timer or background task ends the process, which would else look sound."""
    with Client(serving.endpoint) as client:
        client.declare()
        client.publish(b"a")
        serving.arm()
        with pytest.raises(grpc.RpcError):
            change_for_ever(client)
    assert serving.exit_status() == FAILED
    assert serving.log().count("Traceback") == 1
    with ackq_broker.embedded(serving.data) as again, Client(again.endpoint) as client:
        assert client.browse()[0] == [b"a"]
