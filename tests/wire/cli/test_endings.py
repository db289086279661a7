"""The `ackq` command as a process: imports, Ctrl-C, pipes, exit statuses, questions."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from subprocess import PIPE
from unittest.mock import Mock

import pytest

from ackq import client
from ackq.cli.failure import ExitStatus
from ackq.errors import AckqError, OutcomeUnknownError, StaleDeliveryTagError
from tests.eventually import eventually
from tests.wire.cli.conftest import command, ended


@pytest.fixture
def filled(orders, run):
    """A queue of the test's own with two messages."""
    run("publish", orders, input="a\nb\n")
    return orders


@contextmanager
def started(endpoint, *arguments):
    """A running command whose input and outputs are pipes; it is killed at the end of the block."""
    with subprocess.Popen(
        command(endpoint, *arguments), stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_administration_loads_no_arrow(endpoint):
    """Administration commands do not import Arrow, which takes as long as all other imports."""
    program = (
        "import sys; from ackq.cli.commands import ackq;"
        f"ackq.main(['--endpoint', '{endpoint}', 'queue', 'list'], standalone_mode=False);"
        "print(sorted({'pyarrow', 'numpy', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = ended([sys.executable, "-c", program])
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_a_closed_pipe_ends_a_consumer_without_a_word(endpoint, filled, admin):
    """C12: `consume` into a closed pipe accepts nothing, and exits with 141 without traceback."""
    with started(endpoint, "consume", filled, "--jsonl", "--prefetch", "1") as consumer:
        consumer.stdout.close()
        assert consumer.wait(60) == ExitStatus.BROKEN_PIPE
        assert consumer.stderr.read() == "accepted=0\n"
    assert admin.queue(filled).accepted == 0


def without(stream, endpoint, *arguments):
    """Runs a command with a redirection of the shell, such as `>&-`; its status and stderr."""
    line = ["/bin/sh", "-c", f'exec "$@" {stream}', "sh", *command(endpoint, *arguments)]
    done = ended(line)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(("consume", "-n", "2", *form) for form in ((), ("--jsonl",), ("--json",))),
        ("queue", "purge", "--yes"),
        ("queue", "redrive"),
    ],
)
def test_a_closed_output_is_refused_before_anything_is_done(endpoint, filled, admin, words):
    """C12: a command that cannot say what it did (`>&-`) does nothing."""
    status, said = without(">&-", endpoint, *words, filled)
    assert status == ExitStatus.FAILED
    assert "Standard output is closed" in said
    assert (admin.queue(filled).ready, admin.queue(filled).accepted) == (2, 0)


def test_a_closed_input_or_error_stream(endpoint, filled, admin):
    """P3: `publish` without an input fails; where no error can be said, the work is done."""
    status, said = without("<&-", endpoint, "publish", filled)
    assert status == ExitStatus.FAILED
    assert "Standard input is closed" in said
    assert without("<&-", endpoint, "publish", filled, "c")[0] == ExitStatus.DONE
    assert without("2>&-", endpoint, "consume", filled, "-n", "1")[0] == ExitStatus.DONE
    assert (admin.queue(filled).published, admin.queue(filled).accepted) == (3, 1)


@pytest.mark.parametrize(
    ("words", "stream", "status", "said"),
    [
        (("publish", "Q", os.fsdecode(b"\xff\xfe")), "", 0, ""),
        (("publish", "Q", "--file", "/proc/self/mem"), "", 1, "Input/output error"),
        (("consume", "Q", "-n", "2"), ">/dev/full", 1, "Error: The input or output: No space"),
        (("consume", "Q", "--json"), ">/dev/full", 1, "The input or output: No space"),
        (("definitions", "export"), ">/dev/full", 1, "No space left on device"),
        (("queue", "list"), ">/dev/full", 1, "No space left on device"),
        (("queue", "list"), ">/dev/full 2>/dev/full", 1, ""),
    ],
)
def test_an_error_of_the_system_is_one_line(endpoint, filled, admin, words, stream, status, said):
    """C4: an output that is full, or bytes that are no text, end a command without a traceback."""
    words = [filled if word == "Q" else word for word in words]
    done = without(stream, endpoint, *words)
    assert (done[0], said in done[1]) == (status, True), done
    assert admin.queue(filled).accepted == 0
    if not status:
        assert b"\xff\xfe" in [
            body for batch in admin.browse(filled) for body in batch["body"].to_pylist()
        ]


def test_json_is_utf_8_in_any_locale(endpoint, filled, run):
    """C4: `--jsonl` writes UTF-8; a table escapes what the terminal's encoding does not have."""
    run("publish", filled, "日本")
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    peeked = ended(command(endpoint, "queue", "peek", filled), env=env)
    assert (peeked.returncode, "\\u65e5" in peeked.stdout) == (0, True), peeked.stderr
    done = ended(command(endpoint, "consume", filled, "-n", "3", "--jsonl"), env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["body"] == "日本"


@pytest.mark.parametrize(
    "arguments", [("queue", "list"), ("queue", "list", "--json"), ("queue", "peek", "ORDERS")]
)
def test_a_closed_pipe_ends_a_list_without_a_word(endpoint, filled, arguments):
    """A list into a closed pipe (`ackq queue list | head -1`) ends without an error text."""
    words = [filled if word == "ORDERS" else word for word in arguments]
    reading, writing = os.pipe()
    os.close(reading)
    done = ended(command(endpoint, *words), stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitStatus.BROKEN_PIPE, "")


@pytest.mark.parametrize("outcome", ["accepted", "failed"])
def test_ctrl_c_ends_a_consumer_with_a_line(endpoint, filled, admin, run, outcome):
    """C4, C12: `consume` ended by Ctrl-C has settled what it printed, and exits with 130."""
    run("publish", filled, "c")
    with started(endpoint, "consume", filled, "-n", "4", "--outcome", outcome) as consumer:
        assert [consumer.stdout.readline() for _ in range(3)] == ["a\n", "b\n", "c\n"]
        consumer.send_signal(signal.SIGINT)
        printed, said = consumer.communicate(timeout=60)
    assert (printed, consumer.returncode) == ("", ExitStatus.INTERRUPTED), said
    done = said.removeprefix(f"{outcome}=")[:1]
    assert said == f"{outcome}={done} unanswered=0\nError: Interrupted.\n"
    assert done in {"2", "3"}
    assert admin.queue(filled).accepted == (int(done) if outcome == "accepted" else 0)


@pytest.mark.parametrize("outcome", ["failed", "released"])
def test_a_message_that_is_put_back_is_printed_once(endpoint, filled, run, outcome):
    """C4: `consume` waits for a third message, and does not take the first one again."""
    with started(endpoint, "consume", filled, "-n", "3", "--outcome", outcome) as consumer:
        assert [consumer.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
        run("publish", filled, "c")
        assert consumer.communicate(timeout=60) == ("c\n", f"{outcome}=3\n")


class Answered:
    """A channel whose settlements end as a test says; Ctrl-C follows the last, if they are few."""

    def __init__(self, *ends):
        self._ends = [*ends]

    def __call__(self, *_, **__):
        return nullcontext(self)

    def consume(self, *_, **__):
        return self

    def receive(self, _):
        if not self._ends:
            raise KeyboardInterrupt
        settlement = client.Settlement()
        end = self._ends.pop(0)
        if isinstance(end, AckqError):
            settlement.fail(end)
        elif end:
            settlement.succeed(1)
        return Mock(body=b"a", accept=lambda: settlement)


STALE, UNKNOWN = StaleDeliveryTagError("It is back."), OutcomeUnknownError("Who knows.")


@pytest.mark.parametrize(
    ("ends", "said", "status"),
    [
        (
            (True, STALE, True),
            "accepted=2 redelivered=1\nError: 1 printed message not accepted: It is back.",
            7,
        ),
        (
            (True, STALE, UNKNOWN),
            "accepted=1 redelivered=1 unanswered=1\nError: 2 printed messages perhaps not accepted",
            8,
        ),
        ((True, False), "accepted=1 unanswered=1\nError: Interrupted.", ExitStatus.INTERRUPTED),
    ],
)
def test_a_consumer_counts_what_the_broker_answered(run, monkeypatch, filled, ends, said, status):
    """C15, C17: a message is accepted when its settlement took effect, not when it was called."""
    monkeypatch.setattr(client, "Channel", Answered(*ends), raising=False)
    result = run("consume", filled, "-n", "3")
    assert result.stderr.startswith(said)
    assert result.exit_code == status


def test_ctrl_c_ends_a_publisher_with_a_line(endpoint, filled, admin):
    """P3: `publish` ended by Ctrl-C prints how many messages were confirmed."""
    with started(endpoint, "publish", filled, "--json") as publisher:
        publisher.stdin.write("c\n")
        publisher.stdin.flush()
        eventually("it", lambda: admin.queue(filled).ready == 3 or publisher.poll() is not None)
        publisher.send_signal(signal.SIGINT)
        _, said = publisher.communicate(timeout=60)
    assert publisher.returncode == ExitStatus.INTERRUPTED
    summary, error = map(json.loads, said.splitlines())
    assert sum(summary["notice"].values()) == 1
    assert error["error"]["code"] == "interrupted"


def test_ctrl_c_tells_refused_messages_from_unanswered_ones(endpoint, filled):
    """P3: a message that was refused is answered, and a line that is no message has failed."""
    lines = [f'{{"body": "a", "routing_key": "{key}"}}' for key in (filled, "nowhere", "nowhere")]
    with started(endpoint, "publish", "--jsonl", "--json") as publisher:
        publisher.stdin.write("\n".join((*lines, "no JSON", "")))
        publisher.stdin.flush()
        for _ in range(3):
            assert "line" in json.loads(publisher.stderr.readline())["notice"]
        publisher.send_signal(signal.SIGINT)
        _, said = publisher.communicate(timeout=60)
    counts = json.loads(said.splitlines()[0])["notice"]
    assert (counts["failed"], counts["confirmed"] + counts["unanswered"]) == (3, 1)


@pytest.mark.parametrize(
    ("words", "done", "text"),
    [
        (("forget", "--force"), {"forgotten": True}, "writer 'A' forgotten"),
        (("assign", "--to", "alice"), {"user": "alice", "before": ""}, "writer 'A' given to user"),
    ],
)
def test_what_was_done_is_said_before_a_refusal(endpoint, run, words, done, text):
    """K3: of several writers, those before one that is refused are named."""
    text, names = text.replace("A", words[0]), (words[0], "nowhere", "later")
    for form in ((), ("--json",)):
        client.commit_batch(endpoint, writer=names[0], batch_id=0, run_id="r", stages=())
        result = run("writer", *words, *names, *form)
        assert result.exit_code == ExitStatus.NOT_FOUND, result.output
        assert "'nowhere'" in result.stderr
        if not form:
            assert result.stdout.startswith(text)
        names = (f"{names[0]}2", *names[1:])
    assert json.loads(result.stdout)["data"] == [{"writer": f"{words[0]}2", **done}]


@pytest.mark.parametrize(
    ("words", "answer", "status", "left"),
    [
        (("queue", "purge"), "n", ExitStatus.FAILED, 2),
        (("queue", "purge"), "y", ExitStatus.DONE, 0),
        (("queue", "delete", "--force"), "n", ExitStatus.FAILED, 2),
    ],
)
def test_a_person_is_asked_before_messages_go(endpoint, filled, admin, words, answer, status, left):
    """Q4: on a terminal purge and forced delete ask, with the message count; `n` keeps all."""
    person, terminal = pty.openpty()
    os.write(person, f"{answer}\n".encode())
    done = ended(command(endpoint, *words, filled), stdin=terminal)
    os.close(person)
    os.close(terminal)
    assert done.returncode == status
    assert "2 messages" in done.stderr
    assert admin.queue(filled).ready == left


def test_a_shell_completes_commands():
    """Shell completion works with the line that connector/docs/cli.md names."""
    program = "from ackq.cli.commands import ackq; ackq(prog_name='ackq')"
    env = {**os.environ, "_ACKQ_COMPLETE": "bash_source"}
    done = ended([sys.executable, "-c", program], env=env)
    assert "complete -o nosort -F _ackq_completion ackq" in done.stdout
