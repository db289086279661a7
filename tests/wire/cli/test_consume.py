"""Consuming, dead letters and redrive from the command line, against a real broker."""

import json
import re

import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.client import Channel
from tests.wire.cli.conftest import read


@pytest.fixture
def orders(admin, run, request):
    """A queue of the test's own with messages a, b and c, and its dead-letter queue."""
    name = re.sub(r"\W+", "-", request.node.name)
    admin.declare_queue(f"{name}.dead")
    admin.declare_queue(name, delivery_limit=1, dead_letter_queue=f"{name}.dead")
    run("publish", name, input="a\nb\nc\n")
    return name


def left(admin, queue):
    found = admin.queue(queue)
    return found.ready, found.unacked


def test_consume_prints_and_accepts(run, admin, orders):
    """C4: `consume` prints and accepts each body, and prints their number to stderr."""
    result = run("consume", orders, "--timeout", "5s")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a\nb\nc\n", "accepted=3\n")
    assert left(admin, orders) == (0, 0)
    assert admin.queue(orders).accepted == 3


def test_consume_stops_at_a_count(run, admin, orders):
    """`consume -n` accepts only the printed messages; the others stay ready."""
    assert run("consume", orders, "-n", "2").stdout == "a\nb\n"
    assert left(admin, orders) == (1, 0)
    assert run("consume", orders, "-n", "1").stdout == "c\n"


def test_consume_json_is_a_document_a_line(run, orders):
    """`consume --json` prints one document a line with every column, binary bodies in base64."""
    run("publish", orders, "\udcff", "--message-id", "7")
    result = run("consume", orders, "-n", "3", "--json")
    first, *_ = [json.loads(line) for line in result.stdout.splitlines()]
    assert (first["body"], first["body_encoding"], first["delivery_tag"]) == ("a", "utf-8", 1)
    assert (first["queue"], first["headers"], first["delivery_count"]) == (orders, {}, 1)


def test_consume_keeps_bytes(run, orders, tmp_path):
    """`consume` writes a body to a pipe unchanged."""
    file = tmp_path / "body"
    file.write_bytes(b"\x00\xff\x1b[31m")
    run("consume", orders, "-n", "3")
    run("publish", orders, "--file", str(file))
    assert run("consume", orders, "-n", "1").stdout_bytes == b"\x00\xff\x1b[31m\n"


def test_a_body_does_not_command_a_terminal(monkeypatch, capsys):
    """`consume` escapes control characters of a body on a terminal."""
    from ackq.cli.output import print_line

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    print_line(b"\x1b[31mred\xff")
    assert capsys.readouterr().out == "\\x1b[31mred\\xff\n"


@pytest.mark.parametrize("outcome", ["released", "failed"])
def test_consume_puts_back_each_message_once(run, admin, orders, outcome):
    """C4: `consume --outcome` released or failed requeues each message once."""
    result = run("consume", orders, "-n", "3", "--outcome", outcome)
    assert sorted(result.stdout.split()) == ["a", "b", "c"]
    assert left(admin, orders) == (3, 0)


def test_rejected_messages_are_redriven(run, admin, orders):
    """C13, Q6: rejected messages are dead-lettered with the reason, and redriven by command."""
    result = run("consume", orders, "-n", "3", "--outcome", "rejected", "--reason", "bad")
    assert result.stderr == "rejected=3\n"
    (dead, *_) = read(run("queue", "peek", f"{orders}.dead", "--json"))
    assert dead["headers"]["ackq-dead-queue"] == orders
    moved = run("queue", "redrive", f"{orders}.dead", "-n", "2")
    assert moved.stdout == f"queue '{orders}.dead' redriven: messages=2 left=1\n"
    assert left(admin, orders) == (2, 0)
    again = read(run("queue", "redrive", f"{orders}.dead", "--json"))
    assert again == {"queue": f"{orders}.dead", "messages": 1, "left": 0}
    assert run("consume", orders, "-n", "3").stdout == "a\nb\nc\n"


def test_redrive_of_a_range(run, admin, orders):
    """Q6: `queue redrive` takes a range of positions."""
    run("consume", orders, "-n", "3", "--outcome", "rejected")
    options = ("--first-position", "2", "--last-position", "2")
    moved = read(run("queue", "redrive", f"{orders}.dead", *options, "--json"))
    assert moved["messages"] == 1
    assert run("consume", orders, "-n", "1").stdout == "b\n"
    assert left(admin, orders) == (0, 0)


@pytest.mark.parametrize("command", [("consume", "nowhere"), ("queue", "redrive", "nowhere")])
def test_a_queue_that_does_not_exist_is_one_line(run, command):
    """A command on a missing queue fails at once with one line, without waiting for messages."""
    result = run(*command)
    assert (result.exit_code, result.stdout) == (ExitStatus.NOT_FOUND, "")
    assert result.stderr.startswith("Error: ")
    assert "nowhere" in result.stderr


def test_consume_without_a_broker_fails_at_once(monkeypatch):
    """`consume` fails at once without a broker, instead of retrying for a minute."""
    monkeypatch.setattr("ackq.client.Channel", None)
    result = CliRunner().invoke(ackq, ["consume", "q", "--endpoint", "127.0.0.1:1"])
    assert result.exit_code == ExitStatus.UNAVAILABLE
    assert "No ackq broker answered at 127.0.0.1:1" in result.stderr


def test_interrupted_consume_says_how_far_it_came(run, admin, orders, monkeypatch):
    """An interrupted `consume` has settled the printed messages; the others stay."""

    def interrupted(receive, *_):
        yield receive(60)
        raise KeyboardInterrupt

    monkeypatch.setattr("ackq.cli.consume._messages", interrupted)
    result = run("consume", orders)
    assert result.exit_code == ExitStatus.INTERRUPTED
    assert result.stderr == "accepted=1\nError: Interrupted.\n"
    assert left(admin, orders) == (2, 0)


def test_queue_list_shows_who_consumes_and_what_is_dead(run, endpoint, orders):
    """C8, C13: `queue list` shows consumers on channels, and the dead-letter queue."""
    with Channel(endpoint) as channel:
        channel.consume(orders, mode="client").receive(60)
        listed = run("queue", "list").stdout
    header, *lines = listed.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        "QUEUE",
        "READY",
        "UNACKED",
        "DELAYED",
        "STAGED",
        "BYTES",
        "OLDEST",
        "DURABLE",
        "CONSUMERS",
        "SESSIONS",
        "DEAD LETTERS",
    ]
    (line,) = [each for each in lines if each.split()[0] == orders]
    assert line.split()[2] == "3"
    assert line.split()[-2:] == ["1", f"{orders}.dead"]


def test_declare_takes_every_property(run):
    """Q3, C13, C14: `queue declare` takes every property, and `queue show` prints them."""
    run("queue", "declare", "dead-letters")
    options = {
        "message-ttl-ms": 60_000,
        "expires-ms": 120_000,
        "delivery-limit": 3,
        "redelivery-delay-ms": 100,
        "redelivery-delay-max-ms": 1_000,
    }
    given = [
        word
        for name, value in options.items()
        for word in (f"--{name.removesuffix('-ms')}", f"{value}{'ms' * name.endswith('-ms')}")
    ]
    declared = run("queue", "declare", "every", *given, "--dead-letter-queue", "dead-letters")
    assert declared.exit_code == 0, declared.output
    shown = read(run("queue", "show", "every", "--json"))["properties"]
    expected = {name.replace("-", "_"): value for name, value in options.items()}
    assert expected.items() <= shown.items()
    assert shown["dead_letter_queue"] == "dead-letters"
