"""Export and import of definitions (O7)."""

import json

import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.client import Admin
from ackq_broker import embedded
from tests.wire.cli.conftest import failed


@pytest.fixture
def declared(admin):
    """Declares queues, exchanges and bindings of every kind."""
    admin.declare_queue("d-dead")
    admin.declare_queue("d-work", delivery_limit=3, dead_letter_queue="d-dead", message_ttl_ms=5000)
    admin.declare_queue("d-short", durable=False, max_length=7, overflow="drop-head")
    admin.declare_exchange("d-events", "topic")
    admin.declare_exchange("d-all", "fanout", durable=False)
    admin.bind("d-events", "d-work", "a.*")
    admin.bind("d-events", "d-work", "b.#")
    admin.bind("d-all", "d-short")


@pytest.fixture
def other():
    """An empty broker, and a function that runs commands against it."""
    with embedded(sync=False) as broker:

        def run(*arguments, **options):
            return CliRunner().invoke(ackq, ["--endpoint", broker.endpoint, *arguments], **options)

        yield broker, run


@pytest.mark.usefixtures("declared")
def test_what_is_exported_is_imported_elsewhere(run, other, tmp_path):
    """O7: imported definitions are exported identically, and a second import makes nothing."""
    file = tmp_path / "definitions.json"
    assert run("definitions", "export", str(file)).exit_code == 0
    broker, there = other
    counts = "queues=3 exchanges=2 bindings=3"
    would = there("definitions", "import", str(file), "--dry-run")
    assert would.output == f"would make: {counts}\n"
    assert Admin(broker.endpoint).queues() == []
    assert there("definitions", "import", str(file)).output == f"made: {counts}\n"
    assert there("definitions", "export").output == file.read_text()
    again = there("definitions", "import", str(file))
    assert again.output == "made: queues=0 exchanges=0 bindings=0\n"
    work = Admin(broker.endpoint).queue("d-work").properties
    assert (work.delivery_limit, work.dead_letter_queue) == (3, "d-dead")


@pytest.mark.usefixtures("declared")
def test_differences_are_named_and_nothing_is_made(run, other, tmp_path):
    """O7: an import that differs names every difference with both values, and makes nothing."""
    file = tmp_path / "definitions.json"
    run("definitions", "export", str(file))
    broker, there = other
    with Admin(broker.endpoint) as admin:
        admin.declare_queue("d-work", message_ttl_ms=1)
        admin.declare_exchange("d-events", "direct")
        told = there("definitions", "import", str(file))
        assert told.exit_code != 0
        for part in (
            "Nothing was made. ",
            "queue 'd-work': dead_letter_queue is '' at the broker and 'd-dead' in the file",
            "queue 'd-work': message_ttl_ms is 1 at the broker and 5000 in the file",
            "exchange 'd-events': type is 'direct' at the broker and 'topic' in the file",
        ):
            assert part in told.output
        assert [each.queue for each in admin.queues()] == ["d-work"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "its format must be 1"),
        ('{"format": 2}', "its format must be 1"),
        ('{"format": 1, "users": []}', "has the unknown key 'users'"),
        ('{"format": 1, "queues": [{"name": "q"}]}', "each entry of queues needs queue"),
        ('{"format": 1, "queues": [{"queue": "q", "properties": {"color": 1}}]}', "does not know"),
        ('{"format": 1, "queues": [{"queue": "q", "properties": 5}]}', "properties, if any"),
        ('{"format": 1, "queues": [{"queue": 5}]}', "as strings"),
        ('{"format": 1, "queues": ["q"]}', "each entry of queues needs queue"),
        (
            '{"format": 1, "queues": [{"queue": "q", "properties": {"max_length": -1}}]}',
            "a property value",
        ),
        (
            '{"format": 1, "queues": [{"queue": "q", "properties": {"dead_letter_queue": []}}]}',
            "a property value",
        ),
        ('{"format": 1, "exchanges": [{"exchange": "x", "type": []}]}', "a property value"),
        (
            '{"format": 1, "exchanges": [{"exchange": "x", "durable": 1' + "0" * 30 + "}]}",
            "a property value",
        ),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_is_none(run, admin, tmp_path, text, told):
    """O7: an invalid definitions file is refused with what is wrong in it."""
    file = tmp_path / "definitions.json"
    file.write_text(text)
    assert told in failed(run("definitions", "import", str(file)), ExitStatus.USAGE)
    assert "q" not in [each.queue for each in admin.queues()]


@pytest.mark.usefixtures("declared")
def test_the_export_is_json_for_other_programs(run):
    """O7: the exported JSON uses the protocol's names."""
    document = json.loads(run("definitions", "export").output)
    assert document["format"] == 1
    short = next(each for each in document["queues"] if each["queue"] == "d-short")
    assert short["properties"]["overflow"] == "drop-head"
    assert {"exchange": "d-all", "queue": "d-short", "binding_key": ""} in document["bindings"]
