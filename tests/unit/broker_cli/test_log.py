"""The log's formats."""

import json
import logging

import pytest

from ackq_broker.cli.log import configure_log, refusing
from ackq_broker.engine.events import event


@pytest.fixture
def log(capsys):
    """Configures the log with given arguments, returns its reader, and restores the log after."""
    root = logging.getLogger()
    before = root.handlers[:], root.level

    def configured(*arguments):
        configure_log(*arguments)
        return lambda: capsys.readouterr().err

    yield configured
    root.handlers[:], root.level = before


def test_a_name_with_line_ends_stays_on_its_line(log):
    """M3: line breaks in a queue's name cannot begin a log line."""
    written = log("info", "json")
    logging.getLogger("x").info("queue '%s'", "a\n{}\x1b[2J", extra=event("e", queue="a\nb"))
    (line,) = written().splitlines()
    assert json.loads(line)["queue"] == "a\nb"
    assert line.isascii()


def test_a_traceback_is_in_the_object(log):
    """M3: an unexpected error with its traceback is one line, too."""
    written = log("info", "json")
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logging.getLogger("x").exception("failed")
    (line,) = written().splitlines()
    assert "ZeroDivisionError" in json.loads(line)["traceback"]


def test_nobody_else_begins_a_line(log):
    """A7: neither an argument nor a logged exception can forge a log line."""
    written, forged = log("info", "text"), "x\n2026-01-01T00:00:00.000Z ERROR test forged\x1b[2J"
    logging.getLogger("test").info("the label '%s'", forged)
    logging.getLogger("test").error("failed", exc_info=ValueError(forged))
    first, second, *traceback = written().splitlines()
    assert first.endswith(
        r"INFO test the label 'x\n2026-01-01T00:00:00.000Z ERROR test forged\x1b[2J'"
    )
    assert second.endswith("ERROR test failed")
    assert traceback
    assert all(line.startswith("  | ") for line in traceback)


def test_an_interrupted_command_has_found_no_damage(capsys):
    """O4: Ctrl-C ends `verify` with 130: status 1 would mean damage."""
    with pytest.raises(SystemExit) as ended, refusing():
        raise KeyboardInterrupt
    assert (ended.value.code, capsys.readouterr().err) == (130, "ackq-broker: interrupted\n")
