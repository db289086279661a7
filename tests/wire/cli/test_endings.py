"""The `ackq` command as a process: imports, Ctrl-C, pipes, exit statuses, questions."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from ackq.cli.failure import ExitStatus
from tests.eventually import eventually

PROGRAM = "from ackq.cli import main; main()"


def command(endpoint, *arguments):
    return [sys.executable, "-c", PROGRAM, "--endpoint", endpoint, *arguments]


def ended(endpoint, *arguments, **options):
    return subprocess.run(
        command(endpoint, *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


@pytest.fixture
def orders(admin, endpoint, request):
    """A queue of the test's own with two messages."""
    from ackq.client import Publisher

    name = request.node.name
    admin.declare_queue(name)
    with Publisher(endpoint, routing_key=name) as publisher:
        publisher.publish(b"a")
        publisher.publish(b"b")
    return name


def test_administration_loads_no_arrow(endpoint):
    """Administration commands do not import Arrow, which takes as long as all other imports."""
    program = (
        "import sys; from ackq.cli.commands import ackq;"
        f"ackq.main(['--endpoint', '{endpoint}', 'queue', 'list'], standalone_mode=False);"
        "print(sorted({'pyarrow', 'numpy', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "[]\n"


def test_a_closed_pipe_ends_a_consumer_without_a_word(endpoint, orders, admin):
    """C12: `consume` into a closed pipe accepts nothing, and exits with 141 without traceback."""
    consumer = subprocess.Popen(
        command(endpoint, "consume", orders, "--jsonl", "--prefetch", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    consumer.stdout.close()
    assert consumer.wait(60) == ExitStatus.BROKEN_PIPE
    assert consumer.stderr.read() == "accepted=0\n"
    consumer.stderr.close()
    assert admin.queue(orders).accepted == 0


@pytest.mark.parametrize(
    "arguments", [("queue", "list"), ("queue", "list", "--json"), ("queue", "peek", "ORDERS")]
)
def test_a_closed_pipe_ends_a_list_without_a_word(endpoint, orders, arguments):
    """A list into a closed pipe (`ackq queue list | head -1`) ends without an error text."""
    words = [orders if word == "ORDERS" else word for word in arguments]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(endpoint, *words),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitStatus.BROKEN_PIPE, "")


def test_ctrl_c_ends_a_consumer_with_a_line(endpoint, orders, admin):
    """C12: `consume` ended by Ctrl-C has accepted what it printed, and exits with 130."""
    from ackq.client import Publisher

    with Publisher(endpoint, routing_key=orders) as publisher:
        publisher.publish(b"c")
    consumer = subprocess.Popen(
        command(endpoint, "consume", orders),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert [consumer.stdout.readline() for _ in range(3)] == ["a\n", "b\n", "c\n"]
    consumer.send_signal(signal.SIGINT)
    _, said = consumer.communicate(timeout=60)
    assert consumer.returncode == ExitStatus.INTERRUPTED
    assert said in {f"accepted={count}\nError: Interrupted.\n" for count in (2, 3)}
    assert admin.queue(orders).accepted >= 2


def test_ctrl_c_ends_a_publisher_with_a_line(endpoint, orders, admin):
    """P3: `publish` ended by Ctrl-C prints how many messages were confirmed."""
    publisher = subprocess.Popen(
        command(endpoint, "publish", orders, "--json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    publisher.stdin.write("c\n")
    publisher.stdin.flush()
    eventually("it", lambda: admin.queue(orders).ready == 3 or publisher.poll() is not None)
    publisher.send_signal(signal.SIGINT)
    _, said = publisher.communicate(timeout=60)
    assert publisher.returncode == ExitStatus.INTERRUPTED
    summary, error = map(json.loads, said.splitlines())
    assert sum(summary["notice"].values()) == 1
    assert error["error"]["code"] == "interrupted"


@pytest.mark.parametrize(
    ("words", "answer", "status", "left"),
    [
        (("queue", "purge"), "n", ExitStatus.FAILED, 2),
        (("queue", "purge"), "y", ExitStatus.DONE, 0),
        (("queue", "delete", "--force"), "n", ExitStatus.FAILED, 2),
    ],
)
def test_a_person_is_asked_before_messages_go(endpoint, admin, words, answer, status, left):
    """Q4: on a terminal purge and forced delete ask, with the message count; `n` keeps all."""
    from ackq.client import Publisher

    name = f"asked-{words[1]}-{answer}"
    admin.declare_queue(name)
    with Publisher(endpoint, routing_key=name) as publisher:
        publisher.publish(b"a")
        publisher.publish(b"b")
    person, terminal = pty.openpty()
    os.write(person, f"{answer}\n".encode())
    done = ended(endpoint, *words[:2], name, *words[2:], stdin=terminal)
    os.close(person)
    os.close(terminal)
    assert done.returncode == status
    assert "2 messages" in done.stderr
    assert admin.queue(name).ready == left


def test_a_shell_completes_commands():
    """Shell completion works with the line that connector/docs/cli.md names."""
    done = subprocess.run(
        [sys.executable, "-c", "from ackq.cli.commands import ackq; ackq(prog_name='ackq')"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "_ACKQ_COMPLETE": "bash_source"},
    )
    assert "complete -o nosort -F _ackq_completion ackq" in done.stdout
