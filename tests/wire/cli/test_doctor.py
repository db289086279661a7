"""`ackq doctor` with deliberate faults (Q9): each finding has its remedy."""

import socket
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from ackq import __version__
from ackq.cli.commands import ackq
from ackq.cli.context import Target
from ackq.cli.diagnosis.connection import gather_connection
from ackq.cli.diagnosis.machine import gather_machine
from ackq.client import Admin, Broker, Security, close_channels
from ackq.diagnosis.connection_state import check_connection
from ackq.diagnosis.finding import Severity
from ackq.diagnosis.machine_state import check_machine
from ackq.v1 import admin_pb2, admin_pb2_grpc
from tests.eventually import eventually
from tests.fakes.certificates import Authority
from tests.fakes.secured import secured_broker
from tests.wire.cli.conftest import read


def broken(findings):
    """The codes and remedies of the findings that are not ok."""
    return {each.code: each.remedy for each in findings if each.severity is not Severity.OK}


# --- this machine ---


@pytest.fixture
def programs(tmp_path):
    """A function that makes programs in a folder, which alone is in PATH; returns the variables."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(**scripts):
        for name, script in scripts.items():
            file = folder / name
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return {"PATH": str(folder), "HOME": str(tmp_path)}

    return make


PYTHON = 'echo \'{"version": "%s", "missing": %s}\''
GOOD = {
    "java": "echo 'openjdk version \"17.0.9\" 2023-10-17' >&2\n"
    'case $1 in --list-modules) printf "java.base@17\\njdk.incubator.vector@17\\n";; esac',
    "python3": PYTHON % (".".join(map(str, sys.version_info[:3])), "[]"),
}


def test_a_machine_as_it_should_be(programs):
    """Q9: `doctor` finds the programs that Spark starts in the way Spark does."""
    environment = programs(**GOOD)
    assert broken(check_machine(gather_machine(environment))) == {}
    assert gather_machine(environment).java.version == "17.0.9"


@pytest.mark.parametrize(
    ("scripts", "variables", "code"),
    [
        ({"python3": GOOD["python3"]}, {}, "java-missing"),
        ({**GOOD, "java": "echo 'java version \"1.8.0_392\"' >&2"}, {}, "java-old"),
        ({**GOOD, "java": "echo 'openjdk version \"11.0.2\"' >&2"}, {}, "java-old"),
        ({**GOOD, "java": "echo broken >&2; exit 1"}, {}, "java-broken"),
        (GOOD, {"JAVA_HOME": "/no/such/java"}, "java-home"),
        (
            {**GOOD, "java": "echo 'openjdk version \"25\"' >&2; echo java.base@25"},
            {},
            "java-reduced",
        ),
        (GOOD, {"PYSPARK_PYTHON": "no-such-python"}, "worker-python-missing"),
        ({**GOOD, "p": "exit 3"}, {"PYSPARK_PYTHON": "p"}, "worker-python-broken"),
        (
            {**GOOD, "p": PYTHON % ("3.8.1", "[]")},
            {"PYSPARK_PYTHON": "p"},
            "worker-python-version",
        ),
        (
            {**GOOD, "python3": GOOD["python3"].replace("[]", '["grpc"]')},
            {},
            "worker-python-packages",
        ),
        (GOOD, {"ARROW_PRE_0_15_IPC_FORMAT": "1"}, "arrow-old-format"),
    ],
)
def test_what_is_broken_here(programs, scripts, variables, code):
    """Q9: each fault of the machine is one finding with a remedy."""
    found = broken(check_machine(gather_machine({**programs(**scripts), **variables})))
    assert list(found) == [code]
    assert found[code]


def test_settings_of_spark(programs, tmp_path):
    """Q9: an unbounded Arrow batch size in Spark's settings is a finding."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.comment 1\nspark.sql.execution.arrow.maxRecordsPerBatch  -1\n"
    )
    environment = {**programs(**GOOD), "SPARK_CONF_DIR": str(tmp_path)}
    assert list(broken(check_machine(gather_machine(environment)))) == ["arrow-batches"]


# --- the connection to the broker ---


class ToldBroker(admin_pb2_grpc.AdminServiceServicer):
    """A broker whose clock is ahead."""

    def __init__(self, ahead_s):
        self._ahead_s = ahead_s

    def ServerInfo(self, *_):  # noqa: N802
        now_us = int((time.time() + self._ahead_s) * 1_000_000)
        return admin_pb2.ServerInfoResponse(version=__version__, now_us=now_us)


@contextmanager
def served(credentials=None, ahead_s=0):
    """Serves a `ToldBroker`; yields its endpoint."""
    server = grpc.server(ThreadPoolExecutor(4))
    admin_pb2_grpc.add_AdminServiceServicer_to_server(ToldBroker(ahead_s), server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        close_channels()
        server.stop(0).wait()


def found(endpoint, security=None, queue=""):
    facts = gather_connection(Target(Broker.of(endpoint, security)), queue)
    return broken(check_connection(facts))


@pytest.fixture
def closed():
    """An endpoint where nobody listens, nor can meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_a_closed_port_and_a_name_that_is_none(closed):
    """Q9: a closed port and an unknown host name are separate findings."""
    assert list(found(closed)) == ["endpoint-closed"]
    assert list(found("no-such-host.invalid:5775")) == ["endpoint-name"]


def test_a_port_of_something_else():
    """Q9: a port that another protocol serves is found not to be a broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    accepted, _ = server.accept()
                except OSError:
                    return
                accepted.sendall(b"SSH-2.0-OpenSSH\r\n")
                accepted.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert list(found(f"127.0.0.1:{server.getsockname()[1]}")) == ["not-a-broker"]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    close_channels()


@pytest.mark.parametrize(
    ("ahead_s", "severity"), [(0, None), (60, "warning"), (-7_200, "problem"), (7_200, "problem")]
)
def test_a_clock_that_is_wrong(ahead_s, severity):
    """Q9, Q8: a broker clock that differs from this machine's is a finding."""
    with served(ahead_s=ahead_s) as endpoint:
        findings = check_connection(gather_connection(Target(Broker(endpoint)), ""))
    (clock,) = [each for each in findings if each.code == "clock"]
    assert (clock.severity.value if severity else None) == severity


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


def credentials(identity, client_ca=""):
    pair = (Path(identity.key).read_bytes(), Path(identity.cert).read_bytes())
    roots = Path(client_ca).read_bytes() if client_ca else None
    return grpc.ssl_server_credentials([pair], roots, require_client_auth=bool(client_ca))


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ("expired", "Renew"),
        ("of another name", "--server-name"),
        ("untrusted", "--ca"),
        ("no client certificate", "--cert FILE"),
        ("no TLS", "leave out --tls"),
    ],
)
def test_tls_that_is_wrong(authority, tmp_path, wrong, remedy):
    """Q9: a wrong certificate, a missing one, and a broker without TLS are one finding each."""
    here = "127.0.0.1"
    made = {
        "expired": lambda: credentials(authority.issue(here, from_day=-9, to_day=-1)),
        "of another name": lambda: credentials(authority.issue("elsewhere.example")),
        "untrusted": lambda: credentials(Authority(tmp_path / "other").issue(here)),
        "no client certificate": lambda: credentials(authority.issue(here), authority.ca),
        "no TLS": lambda: None,
    }
    with served(made[wrong]()) as endpoint:
        problems = found(endpoint, Security(tls=True, ca=authority.ca))
    assert list(problems) == ["tls"]
    assert remedy in problems["tls"]


def test_a_broker_with_tls_and_users(tmp_path):
    """Q9: on a broker with TLS and users each step of connecting names the missing option."""
    with secured_broker(tmp_path) as secured:
        for user, queue in (("shop", "open"), ("other", "else")):
            token_file = secured.add(user, role="none", read=queue, configure=queue)
        token = Path(token_file).read_text().strip()
        eventually("the users", lambda: secured.knows(token))
        where = secured.endpoint
        assert list(found(where)) == ["tls-needed"]
        trusting = {"tls": True, "ca": secured.authority.ca}
        assert list(found(where, Security(**trusting))) == ["token"]
        assert list(found(where, Security(**trusting, token="wrong"))) == ["token"]
        shop = secured.security("shop")
        Admin(where, security=shop).declare_queue("open")
        assert found(where, shop, queue="open") == {}
        assert list(found(where, secured.security("other"), queue="open")) == ["queue-permission"]
        close_channels()


# --- the command ---


@pytest.fixture
def sound_machine(monkeypatch):
    """Makes Spark's workers start with this Python."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.mark.usefixtures("sound_machine")
def test_a_sound_broker(run, endpoint):
    """Q9: `doctor` exits with 0 if nothing is broken, and has a code for each finding in JSON."""
    run("queue", "declare", "orders")
    result = run("doctor", "--queue", "orders", "--json")
    document = read(result)
    assert document["broken"] is False
    codes = {each["code"] for each in document["findings"] if each["severity"] == "ok"}
    assert {"endpoint", "version", "clock", "queue", "python", "pyarrow"} <= codes
    assert f"The broker at {endpoint} answers" in run("doctor").stdout


@pytest.mark.usefixtures("sound_machine")
def test_a_broken_one_has_status_1(closed):
    """Q9: `doctor` exits with 1 if something is broken, for scripts."""
    result = CliRunner().invoke(ackq, ["--endpoint", closed, "doctor"])
    assert result.exit_code == 1
    assert "PROBLEM  The endpoint" in result.stdout
    assert CliRunner().invoke(ackq, ["doctor", "--no-broker"]).exit_code == 0
