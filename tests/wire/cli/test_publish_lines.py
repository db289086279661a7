"""Lines of JSON in and out, at a set rate: `ackq publish --jsonl` and `ackq consume --jsonl`."""

import json
import time

import pytest

from ackq.cli.failure import ExitStatus
from tests.wire.cli.conftest import failed, read


@pytest.fixture
def orders(admin, request):
    """A queue of the test's own."""
    name = request.node.name
    admin.declare_queue(name)
    return name


def lines(*documents):
    return "".join(json.dumps(each) + "\n" for each in documents)


def browsed(admin, queue, *columns):
    return [row for batch in admin.browse(queue, columns=columns) for row in batch.to_pylist()]


def test_a_line_is_a_message_with_its_properties(run, orders, admin):
    """P3, P7: a JSON line is a message with properties; options override its fields."""
    given = lines(
        {"body": "a", "message_id": "1", "headers": {"k": "v", "l": "w"}, "routing_key": orders},
        {"body_base64": "//4=", "content_type": "x/y", "routing_key": orders},
    )
    options = ("--jsonl", "--header", "k=of all", "--no-persistent")
    assert run("publish", *options, input=given + "\n\n").stdout == "confirmed=2\n"
    assert browsed(
        admin, orders, "body", "message_id", "content_type", "headers", "persistent"
    ) == [
        {
            "body": b"a",
            "message_id": "1",
            "content_type": None,
            "headers": [("k", "of all"), ("l", "w")],
            "persistent": False,
        },
        {
            "body": b"\xff\xfe",
            "message_id": None,
            "content_type": "x/y",
            "headers": [("k", "of all")],
            "persistent": False,
        },
    ]


def test_a_bad_line_is_named_and_those_after_it_are_published(run, orders, admin):
    """P3, P7, P8: an invalid JSON line is named, and the lines before and after are published."""
    bad = lines({"body": "a"}) + "no JSON\n" + lines({"body": "c"})
    bad += lines({"body": "d", "routing_key": "nowhere"}, {"body": "e", "headers": {"k": 1}})
    (admin.declare_exchange("lines"), admin.bind("lines", orders, orders))
    given = bad + lines({"body": "f"})
    result = run("publish", orders, "--jsonl", "--json", input=given)
    assert read(result, ExitStatus.NOT_CONFIRMED) == {
        "confirmed": 4,
        "failed": 2,
        "failed_lines": [2, 5],
    }
    assert [row["body"] for row in browsed(admin, orders, "body")] == [b"a", b"c", b"d", b"f"]
    named = [json.loads(line) for line in result.stderr.splitlines()]
    notices = [each["notice"] for each in named if "notice" in each]
    assert [(each["line"], each["code"]) for each in notices] == [
        (2, "invalid_argument"),
        (5, "invalid_argument"),
    ]
    assert "'headers.k' is 1" in notices[1]["message"]
    assert named[-1]["error"]["exit_status"] == 7
    # Without ROUTING_KEY each line has its own, and an unroutable one is named too.
    said = failed(run("publish", "--jsonl", input=given), ExitStatus.NOT_CONFIRMED)
    assert "line 2: The line is not JSON" in said
    assert "line 4: " in said
    assert "Error: 6 messages" in said


def test_a_bad_line_of_a_transaction_publishes_nothing(run, orders, admin):
    """P13: an invalid line of a transaction is named, and nothing is published."""
    given = lines({"body": "a"}) + "{\n"
    result = run("publish", orders, "--jsonl", "--transaction", input=given)
    said = failed(result, ExitStatus.NOT_CONFIRMED)
    assert "Nothing was published, because of message 2: The line is not JSON" in said
    assert admin.queue(orders).ready == 0


def test_consumed_lines_are_published_again(run, orders, admin, tmp_path):
    """The JSON lines that `consume` prints can be published again, also from a file."""
    admin.declare_queue(f"{orders}-copy")
    given = lines(
        {"body": "a", "message_id": "1", "headers": {"k": "v"}, "correlation_id": "c"},
        {"body_base64": "AP8=", "reply_to": "r", "published_at": "2013-01-01T05:15:00+00:00"},
    )
    assert run("publish", orders, "--jsonl", input=given).exit_code == 0
    properties = ("body", "message_id", "headers", "correlation_id", "reply_to", "published_at")
    before = browsed(admin, orders, *properties)
    taken = run("consume", orders, "-n", "2", "--jsonl")
    assert [json.loads(line)["version"] for line in taken.stdout.splitlines()] == [1, 1]
    file = tmp_path / "lines"
    file.write_text(taken.stdout)
    copied = run("publish", f"{orders}-copy", "--jsonl", "--file", str(file))
    assert copied.stdout == "confirmed=2\n"
    assert browsed(admin, f"{orders}-copy", *properties) == before


def test_publishing_keeps_a_rate(run, orders):
    """`publish --rate` sends the eleventh message ten intervals after the first."""
    started = time.monotonic()
    assert run("publish", orders, "--rate", "20/s", input="a\n" * 11).stdout == "confirmed=11\n"
    assert time.monotonic() - started >= 0.5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("publish", "q", "body", "--jsonl"), "not both"),
        (("publish",), "ROUTING_KEY"),
        (("publish", "q", "--rate", "fast"), "500/s"),
        (("publish", "q", "b", "--ttl", "1 fortnight"), "30s"),
        (("consume", "q", "--timeout", "never"), "30s"),
        (("queue", "declare", "q", "--max-bytes", "64q"), "64k"),
        (("queue", "list", "--sort", "ready", "--after", "q"), "--sort name"),
        (("queue", "redrive", "q", "--cause", "boredom"), "delivery_limit"),
    ],
)
def test_usage_errors_have_a_remedy(run, arguments, said):
    assert said in failed(run(*arguments), ExitStatus.USAGE)


def test_units_of_a_declaration(run, admin):
    """Q3: `queue declare` takes times with units, and sizes with or without."""
    given = ("--message-ttl", "1m", "--max-bytes", "64m", "--expires", "120s")
    assert run("queue", "declare", "units", *given).exit_code == 0
    properties = admin.queue("units").properties
    assert (properties.message_ttl_ms, properties.max_bytes) == (60_000, 64 << 20)
    assert properties.expires_ms == 120_000
    same = ("--message-ttl", "60s", "--max-bytes", "67108864", "--expires", "2m")
    assert run("queue", "declare", "units", *same).stdout == "queue 'units' exists\n"
