"""A broker process's listen addresses, and its reload (O2, O3)."""

import os
import signal
import stat

import pytest

from ackq.client import Admin
from tests.eventually import SOON_S, eventually
from tests.fakes.raw_client import Client
from tests.wire.operations.processes import refused_start, serving


def test_a_unix_socket_and_a_port(tmp_path):
    """O2: a Unix socket and a port serve the same queues; the socket is private and temporary."""
    path = tmp_path / "run" / "broker.sock"
    listen = ("--listen", f"unix:{path}", "--listen", "127.0.0.1:0")
    with serving(tmp_path / "data", *listen) as (process, (local, port), _):
        assert local == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with Client(port) as client:
            client.declare()
            client.publish(b"a")
        with Admin(local) as admin:
            assert admin.queue("q").ready == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON_S) == 0
    assert not path.exists()


def test_the_socket_of_a_broker_that_was_killed(tmp_path):
    """O2: the socket of a killed broker is replaced by the next one, that of a live one is not."""
    path = tmp_path / "broker.sock"
    with serving(tmp_path / "one", "--listen", f"unix:{path}") as (process, *_):
        line = refused_start(tmp_path / "two", "--listen", f"unix:{path}")
        assert f"cannot listen on unix:{path}: another process listens on this address" in line
        process.kill()
        process.wait()
    assert path.exists()
    with (
        serving(tmp_path / "two", "--listen", f"unix:{path}") as (_, (local,), _),
        Admin(local) as admin,
    ):
        assert admin.queues() == []


def test_a_hangup_does_not_end_the_broker(tmp_path):
    """O3: SIGHUP reloads what can change and logs it; an invalid file changes nothing."""
    config = tmp_path / "broker.toml"
    config.write_text('log-level = "warning"\nlisten = "127.0.0.1:0"\n')
    log = tmp_path / "data.log"
    with serving(tmp_path / "data", "--config", config) as (process, (port,), _):
        config.write_text('log-level = "info"\n')
        process.send_signal(signal.SIGHUP)
        said = "reloaded at SIGHUP: log-level is info"
        eventually("the reload", log.read_text, lambda text: said in text)
        config.write_text('log-levle = "error"\n')
        process.send_signal(signal.SIGHUP)
        said = "there is no option 'log-levle'"
        eventually("the refusal", log.read_text, lambda text: said in text)
        with Client(port) as client:
            client.declare()
            client.publish(b"a")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON_S) == 0
        assert "stopped:" in log.read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_of_somebody_else(tmp_path):
    """O2: a socket's folder without permission is refused in words, without an error number."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    line = refused_start(tmp_path / "d", "--listen", f"unix:{folder}/s")
    assert "no permission to make a socket" in line
