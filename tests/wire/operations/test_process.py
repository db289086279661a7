"""The broker as a process: start, readiness, refusals, shutdown, and its end with the parent."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import ackq_broker
from ackq.errors import BrokerUnavailableError
from ackq_broker import embedding
from ackq_broker.embedding import EmbeddedBroker
from tests.eventually import SOON_S
from tests.fakes import machine
from tests.fakes.raw_client import Client, killed
from tests.wire.operations.processes import (
    ANYWHERE,
    command,
    environment,
    refused_start,
    run,
    serving,
)

READY = re.compile(
    r"ackq-broker \S+ listening on 127\.0\.0\.1:(\d+) data=(\S+) sync=fdatasync"
    r" history=[0-9a-f]{32} recovered=(\d+) records in [0-9.]+ s\n"
)


@pytest.fixture
def served(tmp_path):
    """A broker that would wait for open streams for longer than a test does."""
    folder = tmp_path / "env"
    folder.mkdir()
    patient = machine.with_change(folder, "from ackq_broker import server; server._GRACE_S = 1000")
    with serving(tmp_path / "data", *ANYWHERE, **patient) as found:
        yield found


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_and_clean_shutdown(served, tmp_path, end):
    """Q7: a ready line says that the broker serves; a signal ends it with 0 and a snapshot.

    Open streams do not delay that, and what they sent is answered first.
    """
    process, _, line = served
    port, data, recovered = READY.fullmatch(line).groups()
    assert (data, recovered) == (str(tmp_path / "data"), "0")
    with Client(f"127.0.0.1:{port}") as client:
        client.declare()
        with client.publisher() as stream:
            stream.publish(1, b"a", routing_key="q")
            assert stream.confirmed(1) == {1}
            process.send_signal(end)
            assert process.wait(SOON_S) == 0
    assert list((tmp_path / "data").glob("snapshot-*.snap"))
    assert run("verify", data)[0] == 0


def test_a_broker_imports_no_pandas(broker, own):
    """A broker does not import pandas, which pyarrow would, for a third of the start's time."""
    own.publish(b"a")
    assert own.browse()[0] == [b"a"]
    mapped = Path(f"/proc/{broker.pid}/maps").read_text()
    assert ("/pyarrow/" in mapped, "/pandas/" in mapped) == (True, False)


def test_a_reload_before_a_broker_serves():
    """O3: SIGHUP ends nothing, also while `serve` is being imported."""
    program = """
import os, signal, sys
from ackq_broker.cli import main
sys.argv = ["ackq-broker", "serve", "--help"]
sys.meta_path.insert(0, type("", (), {"find_spec": lambda *_: os.kill(os.getpid(), signal.SIGHUP)}))
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_data_directory_in_use(broker):
    """I2, Design 5: a second broker on the same data is refused, naming directory and owner.

    An embedded one raises with the end of its log.
    """
    line = refused_start(broker.data_dir, *ANYWHERE)
    assert f"{broker.data_dir} is in use by process {broker.pid}" in line
    with pytest.raises(BrokerUnavailableError, match="in use by process"):
        EmbeddedBroker(broker.data_dir).__enter__()


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_port_in_use(tmp_path, option):
    """I6, M1: a port in use is a clear error, not a broker that shares it; nothing is opened."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in refused_start(tmp_path / "data", *ANYWHERE, option, address)


def test_newer_format(tmp_path):
    """Q8: a data directory of a newer format is refused with the remedy."""
    with ackq_broker.embedded(tmp_path / "data"):
        pass
    meta = tmp_path / "data" / "FORMAT"
    form = json.loads(meta.read_text())
    meta.write_text(json.dumps({**form, "format": form["format"] + 1}))
    assert "newer" in refused_start(tmp_path / "data", *ANYWHERE)


def test_a_port_file_that_cannot_be_written(tmp_path):
    """I6: with an unwritable port file the broker stops cleanly, with a line naming the file."""
    port_file = ("--port-file", tmp_path / "nowhere" / "port")
    status, _, errors = run("serve", "--data", tmp_path / "data", *ANYWHERE, *port_file)
    assert (status, errors.count("\n"), "nowhere" in errors) == (2, 1, True)
    assert run("verify", tmp_path / "data")[0] == 0


def test_a_dump_into_a_closed_pipe_ends_quietly(broker):
    """I6: `ackq-broker dump DIR | head` prints no error; its status is not that of damage."""
    reading, writing = os.pipe()
    os.close(reading)
    dump = command("dump", broker.data_dir)
    done = subprocess.run(
        dump, stdout=writing, stderr=subprocess.PIPE, check=False, env=environment()
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_shortened_journal(tmp_path):
    """Q7, Q8: a shortened journal is refused until the loss of confirmed messages is repaired."""
    data = tmp_path / "data"
    with ackq_broker.embedded(data) as broker, Client(broker.endpoint) as client:
        client.declare()
        for number in range(60):
            client.publish(b"%d" % number * 500)
        broker.kill()
    (segment,) = data.glob("journal-*.seg")
    os.truncate(segment, 20_000)

    status, out, _ = run("verify", data)
    assert (status, f"{segment.name} byte 20000: the file was shortened" in out) == (1, True)
    assert f"ackq-broker repair --keep-damaged {data}" in refused_start(data, *ANYWHERE)
    assert run("repair", "--keep-damaged", data)[0] == 0
    with ackq_broker.embedded(data) as broker, Client(broker.endpoint) as client:
        assert 5 < client.queue().ready < 60


def test_embedded_keeps_its_data_while_it_runs():
    """Q7, Design 5: after `kill -9` and a restart the same endpoint serves the same data.

    Another `start` leaves it as it is. A temporary directory is removed at the end.
    """
    with ackq_broker.embedded() as broker:
        endpoint, kept = broker.endpoint, broker.data_dir
        with Client(endpoint) as client:
            client.declare()
        with killed(broker) as client:
            assert (client.endpoint, client.queue().ready) == (endpoint, 0)
        running = broker.pid
        assert broker.start().pid == running
    assert not kept.parent.exists()


def test_embedded_under_a_limit_names_the_limit(tmp_path, monkeypatch):
    """Design 5: if a signal ends the broker before it logs anything, the likely cause is named."""

    def aborted(_, log, **__):
        ends = "import os; os.abort()"
        return subprocess.Popen([sys.executable, "-c", ends], stdout=subprocess.PIPE, stderr=log)

    monkeypatch.setattr(embedding, "start_child", aborted)
    with pytest.raises(BrokerUnavailableError, match=r"by SIGABRT.* log is empty.*ulimit -v"):
        ackq_broker.embedded(tmp_path / "data").start()
