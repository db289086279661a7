"""The command line against a real broker: output as text and JSON, exit status, errors."""

import json
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ackq import __version__
from ackq.cli import publish
from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.cli.output import preview, print_table
from tests.wire.cli.conftest import failed, read


@pytest.fixture
def orders(admin, request):
    """A queue of the test's own."""
    name = request.node.name
    admin.declare_queue(name)
    return name


@pytest.fixture
def lease(open_lease, run, orders):
    """A session that holds two leased messages, named after its queue."""
    run("publish", orders, input="a\nb\n")
    open_lease(orders)
    return orders


def line_of(table, body):
    """The cells of the table line that ends with a body."""
    (line,) = [line for line in table.splitlines() if line.rstrip().endswith(body)]
    return line.split()


def test_declare_says_what_happened(run):
    """Q1: `queue declare` is idempotent, and says whether the queue was created or existed."""
    assert run("queue", "declare", "d1").stdout == "queue 'd1' created\n"
    assert run("queue", "declare", "d1").stdout == "queue 'd1' exists\n"
    declared = read(run("queue", "declare", "d1", "--json"))
    assert (declared["queue"], declared["created"]) == ("d1", False)


def test_declare_warns_on_stderr(endpoint):
    """Q1: `queue declare` warns on stderr of a delivery limit without effect, once."""
    command = ["queue", "declare", "d3", "--delivery-limit", "5", "--json"]
    program = "from ackq.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, "--endpoint", endpoint, *command],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stderr.count("has no effect") == 1
    (warning,) = json.loads(result.stdout)["data"]["warnings"]
    assert json.loads(result.stderr) == {"version": 1, "notice": {"warning": warning}}


def test_declare_with_other_properties_fails_in_one_line(run):
    """Q1: a refused declare is one line on stderr, with the exit status of a refusal."""
    run("queue", "declare", "d2")
    result = run("queue", "declare", "d2", "--max-length", "5")
    assert result.exit_code == ExitStatus.REFUSED
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert "d2" in result.stderr
    assert result.stderr.count("\n") == 1


def test_queue_list_and_show_have_stable_keys(run, orders):
    """The keys of queues in JSON are the protocol's field names."""
    listed = read(run("queue", "list", "--json"))
    shown = read(run("queue", "show", orders, "--json"))
    assert [each for each in listed if each["queue"] == orders] == [shown]
    assert set(shown) == {
        "queue",
        "queue_id",
        "properties",
        "ready",
        "unacked",
        "staged",
        "payload_bytes",
        "oldest_age_ms",
        "sessions",
        "published",
        "accepted",
        "delayed",
        "expired",
        "dead_lettered",
        "dropped",
        "consumers",
    }
    assert shown["properties"]["overflow"] == "reject-publish"
    assert shown["ready"] == 0


def test_queue_list_for_people(run, orders):
    """`queue list` into a pipe prints whole names, whatever their length."""
    lines = run("queue", "list").stdout.splitlines()
    assert lines[0].split()[:3] == ["QUEUE", "READY", "UNACKED"]
    assert orders in [line.split()[0] for line in lines[1:]]


def test_queue_show_for_people(run, orders):
    lines = run("queue", "show", orders).stdout.splitlines()
    assert dict(line.split(maxsplit=1) for line in lines if " " in line.strip())["durable"] == "yes"


def test_publish_argument(run, orders, admin):
    """P3: `publish` prints the number of confirmed messages."""
    assert run("publish", orders, "hello").stdout == "confirmed=1\n"
    assert admin.queue(orders).ready == 1


def test_publish_lines_of_stdin(run, orders, admin):
    """`publish` sends each line of stdin as a message, without the line end."""
    published = read(run("publish", orders, "--json", input="a\nb\r\n\nc"))
    assert published == {"confirmed": 4, "failed": 0}
    (batch,) = admin.browse(orders, columns=["body"])
    assert batch.column(0).to_pylist() == [b"a", b"b", b"", b"c"]


def test_publish_file_with_headers(run, orders, admin, tmp_path):
    """`publish --file` sends a file as one message, byte for byte."""
    file = tmp_path / "body"
    file.write_bytes(b"\x00\xff\n")
    options = ("--header", "k=v=w", "--message-id", "7", "--content-type", "x/y", "--no-persistent")
    assert run("publish", orders, "--file", str(file), *options).stdout == "confirmed=1\n"
    columns = ["body", "headers", "message_id", "content_type", "persistent"]
    (batch,) = admin.browse(orders, columns=columns)
    assert batch.to_pylist() == [
        {
            "body": b"\x00\xff\n",
            "headers": [("k", "v=w")],
            "message_id": "7",
            "content_type": "x/y",
            "persistent": False,
        }
    ]


def test_publish_with_a_ttl(run, orders, admin):
    """Q3: `publish --ttl` sends a message that expires."""
    run("publish", orders, "hello", "--ttl", "60s")
    (batch,) = admin.browse(orders, columns=["expires_at"])
    assert batch.column(0).null_count == 0
    assert run("publish", orders, "hello", "--ttl", "0s").exit_code == 2


def test_publish_in_a_transaction(run, orders, admin):
    """P13: `publish --transaction` publishes all lines of stdin or none."""
    assert run("publish", orders, "--transaction", input="a\nb\n").stdout == "committed=2\n"
    assert read(run("publish", orders, "c", "--transaction", "--json")) == {"committed": 1}
    admin.declare_queue(f"{orders}-small", max_length=1)
    refused = run("publish", f"{orders}-small", "--transaction", input="a\nb\n")
    assert "has room for 1 only" in failed(refused, ExitStatus.NOT_CONFIRMED)
    assert admin.queue(f"{orders}-small").ready == 0
    nobody = run("publish", "no-such-queue", "a", "--transaction")
    said = failed(nobody, ExitStatus.NOT_CONFIRMED)
    assert "is committed, but 1 of its 1 messages are in no queue" in said
    too_large = run("publish", orders, "--transaction", input="a\n" + "x" * (65 << 20))
    assert "Nothing was published, because of message 2" in too_large.stderr
    assert admin.queue(orders).ready == 3


def test_publish_that_nobody_wants_fails(run):
    """P7: `publish` is mandatory, so that a wrong queue name is an error."""
    result = run("publish", "no-such-queue", "hello", "--json")
    assert read(result, ExitStatus.NOT_CONFIRMED) == {"confirmed": 0, "failed": 1}
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["exit_status"]) == ("unroutable", 7)
    assert error["message"].startswith("1 message returned: ")
    said = failed(run("publish", "no-such-queue", "hello"), ExitStatus.NOT_CONFIRMED)
    assert said.startswith("Error: 1 message returned: ")


def test_publish_without_a_broker_fails_at_once(monkeypatch):
    """`publish` fails at once without a broker, instead of retrying for a minute."""
    monkeypatch.setattr("ackq.client.Publisher", None)
    arguments = ["publish", "q", "body", "--endpoint", "127.0.0.1:1"]
    result = CliRunner().invoke(ackq, arguments)
    said = failed(result, ExitStatus.UNAVAILABLE)
    assert "No ackq broker answered at 127.0.0.1:1" in said


def test_line_over_the_limit_ends_publishing_and_is_named(run, orders, admin, monkeypatch):
    """P3: `publish` confirms the lines before an oversized one, and names that one's error."""
    monkeypatch.setattr("ackq.limits.MAX_MESSAGE_BYTES", 100 + len(orders))
    lines = [b"a", b"b", b"x" * 101, b"after"]
    result = run("publish", orders, input=b"\n".join(lines))
    assert result.exit_code == ExitStatus.NOT_CONFIRMED
    assert result.stdout == "confirmed=2\n"
    assert (
        "Message 3 and the messages after it were not published: The message has" in result.stderr
    )
    assert admin.queue(orders).ready == 2


def test_publish_keeps_all_but_the_line_end(run, orders, admin):
    """`publish` strips one line end only; a body may end in carriage returns."""
    run("publish", orders, input=b"a\r\r\n")
    (batch,) = admin.browse(orders, columns=["body"])
    assert batch.column(0).to_pylist() == [b"a\r"]


def test_interrupted_publish_says_how_far_it_came(run, orders, monkeypatch):
    """P3: an interrupted `publish` says how many messages were confirmed."""

    def interrupted(*_):
        yield publish._Line(1, b"a")
        raise KeyboardInterrupt

    monkeypatch.setattr(publish, "_lines", interrupted)
    result = run("publish", orders)
    assert result.exit_code == ExitStatus.INTERRUPTED
    assert re.search(r"confirmed=[01] unanswered=[01]\nError: Interrupted.\n", result.stderr)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("publish", "q", "body", "--file", __file__), "not both"),
        (("publish", "q", "body", "--header", "novalue"), "is not NAME=VALUE"),
        (("queue", "declare", "q", "--max-length", "-1"), "--max-length"),
        (("queue", "declare", "q", "--overflow", "explode"), "drop-head"),
        (("queue", "vanish"), "No such command"),
        (("queue", "redrive", "q", "--count", "0"), "--count"),
        (("consume", "q", "--reason", "late"), "--reason needs"),
        (("consume", "q", "--outcome", "failed"), "give --count as well"),
        (("consume", "q", "--outcome", "lost"), "rejected"),
    ],
)
def test_usage_errors_exit_with_2(run, arguments, expected):
    result = run(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_peek_shows_messages_without_consuming(run, orders, admin):
    """Q5: `queue peek` shows bodies as text, or as base64 if they are not text."""
    run("publish", orders, input=b"plain\n\xff\xfe\n")
    first, second = read(run("queue", "peek", orders, "--json"))
    assert (first["body"], first["body_encoding"], first["position"]) == ("plain", "utf-8", 1)
    assert (second["body"], second["body_encoding"]) == ("//4=", "base64")
    assert first["headers"] == {}
    assert first["leased"] is False
    assert len(read(run("queue", "peek", orders, "--json", "--count", "1"))) == 1
    assert "plain" in run("queue", "peek", orders).stdout
    assert admin.queue(orders).ready == 2


def test_peek_counts_deliveries(run, lease):
    """C7: `queue peek` shows 0 deliveries of a ready message, and 1 of a leased one."""
    run("publish", lease, "ready")
    table = run("queue", "peek", lease).stdout
    assert line_of(table, " a") == ["1", "yes", "1", lease, "a"]
    assert line_of(table, " ready") == ["3", "no", "0", lease, "ready"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x1b[31mred\n\ttab", "\\x1b[31mred\\n\\ttab"),
        ("é".encode() * 40, "é" * 40),
        (b"a" + "é".encode() * 40, "a" + "é" * 39 + "… (81 bytes)"),
        (b"\xff" * 81, str(b"\xff" * 80) + "… (81 bytes)"),
        (b"a\xc3", str(b"a\xc3")),
        (None, ""),
    ],
)
def test_preview_is_one_line_of_whole_characters(body, expected, capsys):
    """Q5: a body in a table neither controls the terminal nor breaks the line."""
    print_table(("BODY",), [(preview(body),)])
    assert capsys.readouterr().out.splitlines()[1:] == [expected]


def test_table_in_a_locale_without_its_characters(endpoint, run, orders):
    """A table in an ASCII locale is printed without a traceback, whatever the body."""
    run("publish", orders, "é")
    program = "from ackq.cli import main; main()"
    arguments = ["--endpoint", endpoint, "queue", "peek", orders]
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert result.returncode == 0, result.stderr
    assert "é" in result.stdout.decode()


def test_purge_and_delete_count(run, orders):
    """Q4: `queue purge` and `queue delete` print counts."""
    run("publish", orders, input="a\nb\n")
    purged = read(run("queue", "purge", orders, "--yes", "--json"))
    assert purged == {"queue": orders, "purged": 2}
    run("publish", orders, "c")
    assert orders in failed(run("queue", "delete", orders, "--if-empty"))
    gone = read(run("queue", "delete", orders, "--force", "--yes", "--json"))
    assert gone == {"queue": orders, "ready": 1, "unacked": 0}
    missing = run("queue", "show", orders)
    assert orders in failed(missing, ExitStatus.NOT_FOUND)


def test_exchange_and_bindings(run, orders, admin):
    """Q2: an exchange can be declared, bound, published to, unbound and deleted by commands."""
    name = f"x-{orders}"
    declared = read(run("exchange", "declare", name, "--kind", "topic", "--json"))
    assert declared == {"exchange": name, "created": True}
    bound = read(run("bind", name, orders, "eu.#", "--json"))
    assert bound == {"exchange": name, "queue": orders, "binding_key": "eu.#", "created": True}
    run("publish", "eu.berne", "hello", "--exchange", name)
    assert admin.queue(orders).ready == 1
    listed = read(run("exchange", "list", "--json"))
    assert [each for each in listed if each["exchange"] == name] == [
        {
            "exchange": name,
            "type": "topic",
            "durable": True,
            "bindings": [{"queue": orders, "binding_key": "eu.#"}],
        }
    ]
    assert "eu.#" in run("exchange", "list").stdout
    assert read(run("unbind", name, orders, "eu.#", "--json"))["removed"] is True
    assert run("unbind", name, orders, "eu.#").stdout == "there was no such binding\n"
    assert read(run("exchange", "delete", name, "--yes", "--json")) == {
        "exchange": name,
        "bindings": 0,
    }


def test_sessions_show_their_lease(run, lease):
    """S5, S8: `session show` prints the lease and its holder, without the holder's token."""
    shown = read(run("session", "show", lease, "--json"))
    assert (shown["queues"], shown["leased"], shown["end_tag"]) == ([lease], 2, 2)
    assert shown["holder"]["application"] == "test"
    assert "token" not in shown["holder"]
    assert lease in [each["session"] for each in read(run("session", "list", "--json"))]
    row = next(line for line in run("session", "list").stdout.splitlines() if lease in line)
    assert "(0, 2]" in row
    assert "live" in row.split()
    assert "holder_application" in run("session", "show", lease).stdout


def test_release_puts_the_lease_back(run, lease, admin):
    """S5, S8: `session release` makes the leased messages ready again."""
    released = read(run("session", "release", lease, "--fence", "--json"))
    assert released == {"session": lease, "released": 2, "dropped": 0}
    assert (admin.queue(lease).ready, admin.queue(lease).unacked) == (2, 0)


def test_unknown_session_fails(run):
    result = run("session", "release", "nobody")
    assert "nobody" in failed(result, ExitStatus.NOT_FOUND)


def test_info(run):
    assert read(run("info", "--json"))["version"] == __version__
    assert "history_id" in run("info").stdout


def test_accept_history(run):
    """Q8: `accept-history` with nothing to accept says so, as text and JSON."""
    history = read(run("info", "--json"))["history_id"]
    assert read(run("broker", "accept-history", "--json"))["history_id"] == history
    assert run("broker", "accept-history").stdout == (
        f"history {history} accepted: publishers=0 sessions=0 writers=0 links=0 may go on\n"
    )


def test_endpoint_may_come_from_anywhere(endpoint):
    """The endpoint may come before the command, after it, or from the environment."""
    for arguments, env in (
        (["--endpoint", endpoint, "info"], {}),
        (["info", "--endpoint", endpoint], {"ACKQ_ENDPOINT": "127.0.0.1:1"}),
        (["info"], {"ACKQ_ENDPOINT": endpoint}),
    ):
        assert CliRunner().invoke(ackq, arguments, env=env).exit_code == 0
    assert read(CliRunner().invoke(ackq, ["--json", "info"], env=env))["history_id"]


def test_no_broker_is_one_line():
    """Without a broker the error is one line that names the endpoint and the remedy."""
    result = CliRunner().invoke(ackq, ["queue", "purge", "q", "--endpoint", "127.0.0.1:1"])
    assert result.exit_code == ExitStatus.UNAVAILABLE
    assert "127.0.0.1:1" in result.stderr
    assert "Check the address" in result.stderr
    assert result.stderr.count("\n") == 1


def test_bad_security_is_one_line():
    result = CliRunner().invoke(ackq, ["--cert", "me.pem", "info"])
    assert "both the client's certificate and its key" in failed(result, ExitStatus.USAGE)
