"""Commands in surroundings that no transcript has: limits, locales, terminals, environments."""

import os

import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.cli.output import preview, print_line, print_table
from tests.wire.cli.conftest import command, ended, failed, read


@pytest.mark.parametrize("name", ["publish", "consume"])
def test_a_command_without_a_broker_fails_at_once(monkeypatch, name):
    """`publish` and `consume` fail at once without a broker, instead of retrying for a minute."""
    monkeypatch.setattr("ackq.client.Publisher", None)
    monkeypatch.setattr("ackq.client.Channel", None)
    arguments = [name, "q", *(["body"] if name == "publish" else [])]
    result = CliRunner().invoke(ackq, [*arguments, "--endpoint", "127.0.0.1:1"])
    said = failed(result, ExitStatus.UNAVAILABLE)
    assert "No ackq broker answered at 127.0.0.1:1" in said


def test_line_over_the_limit_ends_publishing_and_is_named(run, orders, admin, monkeypatch):
    """P3: `publish` confirms the lines before an oversized one, and names that one's error."""
    monkeypatch.setattr("ackq.limits.MAX_MESSAGE_BYTES", 100 + len(orders))
    lines = [b"a", b"b", b"x" * 101, b"after"]
    result = run("publish", orders, input=b"\n".join(lines))
    assert result.stdout == "confirmed=2\n"
    assert "Message 3 and the messages after it were not published: The message has" in failed(
        result, ExitStatus.NOT_CONFIRMED
    )
    assert admin.queue(orders).ready == 2
    too_large = run("publish", orders, "--transaction", input="a\n" + "x" * 101)
    assert "Nothing was published, because of message 2" in too_large.stderr


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x1b[31mred\n\ttab", "\\x1b[31mred\\n\\ttab"),
        ("é".encode() * 40, "é" * 40),
        (b"a" + "é".encode() * 40, "a" + "é" * 39 + "… (81 bytes)"),
        (b"\xff" * 81, "\\xff" * 80 + "… (81 bytes)"),
        (b"a\xc3\n", "a\\xc3\\n"),
        (None, ""),
    ],
)
def test_preview_is_one_line_of_whole_characters(body, expected, capsys):
    """Q5: a body in a table neither controls the terminal nor breaks the line."""
    print_table(("BODY",), [(preview(body),)])
    assert capsys.readouterr().out.splitlines()[1:] == [expected]


def test_a_body_does_not_command_a_terminal(monkeypatch, capsys):
    """`consume` escapes control characters of a body on a terminal."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    print_line(b"\x1b[31mred\xff")
    assert capsys.readouterr().out == "\\x1b[31mred\\xff\n"


def test_table_in_a_locale_without_its_characters(endpoint, run, orders):
    """A table in an ASCII locale is printed without a traceback, whatever the body."""
    run("publish", orders, "é")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = ended(command(endpoint, "queue", "peek", orders), env=ascii_only, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert "é" in result.stdout


def test_endpoint_may_come_from_anywhere(endpoint):
    """The endpoint may come before the command, after it, or from the environment."""
    for arguments, env in (
        (["--endpoint", endpoint, "info"], {}),
        (["info", "--endpoint", endpoint], {"ACKQ_ENDPOINT": "127.0.0.1:1"}),
        (["info"], {"ACKQ_ENDPOINT": endpoint}),
    ):
        result = CliRunner().invoke(ackq, arguments, env=env)
        assert (result.exit_code, "history_id" in result.stdout) == (0, True)
    assert read(CliRunner().invoke(ackq, ["--json", "info"], env=env))["history_id"]
