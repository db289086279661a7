"""Errors of clients that TLS or users refuse, with real brokers and the real command."""

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ackq import errors
from ackq.client import (
    Admin,
    Broker,
    Channel,
    Publisher,
    Security,
    StageWriter,
    close_channels,
    wait_ready,
)
from ackq_broker import embedded
from tests.eventually import SOON_S
from tests.fakes import machine
from tests.fakes.certificates import Authority
from tests.fakes.secured import secured_broker
from tests.wire.cli.conftest import ended

NOISE = ("Traceback", "ssl_", "grpc", "E0000", "absl")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Yields a broker for each kind of refusal, by name.

    `strange` is an unrelated authority, `patient` the environment of a command.
    """
    with ExitStack() as stack:
        secured = secured_broker(tmp_path_factory.mktemp("secured"))
        found = {"secured": stack.enter_context(secured)}
        found["plain"] = stack.enter_context(
            embedded(tmp_path_factory.mktemp("plain") / "data", sync=False)
        )
        found["strange"] = Authority(tmp_path_factory.mktemp("strange"))
        # A command that would retry for longer than a test waits for it.
        folder = tmp_path_factory.mktemp("patient")
        found["patient"] = machine.with_limits(folder, {"RETRY_TOTAL_MS": 3_600_000})
        yield found
        close_channels()


def ackq(*arguments, **env):
    """Runs the command as a process; returns its status, output and error output."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("ACKQ_")}
    own.pop("GRPC_VERBOSITY", None)
    path = os.pathsep.join(filter(None, sys.path))
    program = [sys.executable, "-c", "from ackq.cli import main; main()", *arguments]
    done = ended(program, env={**own, "PYTHONPATH": path, **env})
    return done.returncode, done.stdout, done.stderr


def told(brokers, name, **env):
    """The one line that a refused command prints, without retrying."""
    endpoint = brokers[name].endpoint
    status, out, err = ackq("--endpoint", endpoint, "info", **brokers["patient"], **env)
    assert (status != 0, out, err.count("\n")) == (True, "", 1)
    assert not [each for each in NOISE if each in err]
    return err.replace(endpoint, "HERE")


def test_who_is_right_gets_in(brokers):
    """A9: TLS and token by the environment or by arguments let a command in."""
    secured = brokers["secured"]
    security = secured.security()
    trusting = {"ACKQ_CA": security.ca, "ACKQ_ENDPOINT": secured.endpoint}
    token = Path(security.token_file).read_text().strip()
    assert ackq("info", **trusting, ACKQ_TOKEN_FILE=security.token_file)[0] == 0
    assert ackq("info", **trusting, ACKQ_TOKEN=token)[0] == 0
    given = ("--endpoint", secured.endpoint, "--ca", security.ca)
    assert ackq(*given, "--token-file", security.token_file, "info")[0] == 0
    assert ackq(*given, "--token", token, "info")[0] == 2


def test_the_readme_gets_in(brokers):
    """A9: the README's program runs as printed, except for names and paths."""
    secured = brokers["secured"]
    security = secured.security()
    text = (Path(__file__).parents[3] / "connector/docs/secure.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (block,) = [each for each in blocks if "Security(" in each]
    here = {
        "broker.example:5775": secured.endpoint,
        "/etc/ackq/ca.pem": security.ca,
        "/etc/ackq/token": security.token_file,
    }
    for name, ours in here.items():
        block = block.replace(name, ours)
    with Admin(secured.endpoint, security=security) as admin:
        admin.declare_queue("orders")
        before = admin.queue("orders").ready
        exec(block)  # noqa: S102 - our own text
        assert admin.queue("orders").ready == before + 1


@pytest.mark.parametrize(
    ("name", "env", "line"),
    [
        ("secured", {"ACKQ_CA": "strange"}, "from none of the authorities that this client trusts"),
        ("secured", {}, "The broker at HERE wants TLS, and this client speaks plain text. Turn"),
        ("plain", {"ACKQ_TLS": "1"}, "The broker at HERE speaks plain text, and this client wants"),
        ("secured", {"ACKQ_CA": "own"}, "The broker at HERE wants a token, and this client has"),
        ("secured", {"ACKQ_CA": "own", "ACKQ_TOKEN": "wr0ng"}, "does not know the token of this"),
    ],
)
def test_a_refused_command_says_one_line(brokers, name, env, line):
    """A9: a refused command prints one line with cause and remedy, at once, and nothing of gRPC."""
    if env.get("ACKQ_CA"):
        authority = brokers["strange"] if env["ACKQ_CA"] == "strange" else brokers[name].authority
        env = {**env, "ACKQ_CA": authority.ca}
    said = told(brokers, name, **env)
    assert line in said
    assert "wr0ng" not in said


@pytest.mark.parametrize("kind", ["TLS", "token"])
def test_no_client_goes_on_trying(brokers, kind):
    """A9: each kind of stream ends with the refusal, instead of retrying for ever."""
    secured = brokers["secured"]
    wanted = {"TLS": errors.TlsError, "token": errors.UnauthenticatedError}[kind]
    ca = {"TLS": brokers["strange"].ca, "token": secured.authority.ca}[kind]
    wrong = Broker(secured.endpoint, Security(tls=True, ca=ca, token="wr0ng"), retry_ms=None)
    with pytest.raises(wanted), Publisher(wrong) as publisher:
        publisher.publish(b"", routing_key="q").result(SOON_S)
    with pytest.raises(wanted), Channel(wrong) as channel:
        channel.consume("q").receive(timeout_s=SOON_S)
    with pytest.raises(wanted):
        StageWriter(wrong, writer="w", batch_id=0, run_id="r").seal()
    if kind == "TLS":  # the health check needs no token
        with pytest.raises(wanted):
            wait_ready(wrong, 3_600)


def test_a_restart_is_waited_for(tmp_path):
    """A9, P10: with TLS and a token a restarted broker is waited for as well."""
    with secured_broker(tmp_path) as secured:
        security = secured.security()
        with Admin(secured.endpoint, security=security) as admin:
            admin.declare_queue("q")
            with Publisher(secured.endpoint, security=security, routing_key="q") as publisher:
                publisher.publish(b"1").result()
                secured.broker.kill()
                answer = publisher.publish(b"2")
                secured.broker.restart()
                answer.result(timeout=60)
            wait_ready(secured.endpoint, 60, security=security)
            assert admin.queue("q").ready == 2
    close_channels()
