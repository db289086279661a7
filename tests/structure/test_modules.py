"""Modules and folders of a size that can be read: 60 to 450 lines of code, 3 to 13 modules."""

from collections import Counter

import pytest

from tests.structure.product import FOLDERS, GENERATED, code_lines, unjustified

MOST_LINES, FEWEST_LINES = 450, 60
MOST_MODULES, FEWEST_MODULES = 13, 3

# Modules below the fewest lines that are a thing of their own.
SMALL = {
    "ackq/cli": {
        "broker": "a group of commands",
        "commands": "the root of the commands",
        "context": "what every command shares",
        "progress": "a pace and a bar",
    },
    "ackq/cli/diagnosis": {
        "doctor": "one command",
        "findings": "how findings look",
        "why": "one command",
    },
    "ackq/client/blocks": {"small_arrays": "without pandas"},
    "ackq/client/connection": {
        "attempts": "what three kinds of streams share",
        "errors": "gRPC's errors as ours",
        "health": "the health check",
        "heartbeats": "what two kinds of streams share",
        "security": "credentials; Spark imports it without gRPC",
    },
    "ackq/client/consuming": {
        "received_tags": "a data structure",
    },
    "ackq_link/edge": {"outbound": "rule L26"},
    "ackq/client/publishing": {"state": "what two state machines share"},
    "ackq/client/sessions": {"liveness_stream": "rule S3"},
    "ackq/client": {
        "event_loop": "what asyncio needs of threads",
        "futures": "a data structure",
        "outcomes": "public enums",
        "ranges": "a data structure",
    },
    "ackq": {
        "outcomes": "enums of client, Spark and broker",
        "extras": "a text",
        "info": "the names of generated classes",
        "secret_files": "a function of the client and the broker",
        "text": "a function of the command line and the broker",
        "units": "texts of options as numbers",
    },
    "ackq/diagnosis": {
        "finding": "the type of all findings",
        "installation_facts": "facts of one command",
        "queue_facts": "facts of one command",
        "wording": "numbers for people",
    },
    "ackq/spark/settlement": {"settle": "a public function"},
    "ackq/spark/source": {
        "checkpoint_proof": "reads what Spark wrote",
        "fetch": "runs on executors",
        "older_reader": "the source of older versions of Spark",
        "offset": "JSON in checkpoints",
        "partitions": "pickled to executors",
    },
    "ackq/spark/sink": {"advice": "a warning"},
    "ackq/spark": {
        "connections": "channels by process",
        "engine": "what versions of Spark do not have in common",
        "guarded_write": "rule K12, in the driver",
        "reader_process": "a program",
        "task": "what Spark tells of a task",
    },
    "ackq/wire": {
        "allocator": "mallopt by ctypes",
        "fetch_key": "rule A4",
        "held_bytes": "a data structure",
        "outcomes": "the enum's numbers",
    },
    "ackq_broker/cli": {
        "commands": "the root of the commands",
        "explanations": "a table of causes and remedies",
        "history": "a group of commands",
        "log": "what every command shares",
        "standard_input": "what two commands share",
    },
    "ackq_broker/core": {
        "checks": "shared by all rooms",
        "history": "rule Q8",
    },
    "ackq_broker/core/columns": {
        "deadlines": "a data structure",
        "packed_sizes": "a data structure",
    },
    "ackq_broker/core/commands": {
        "consuming": "types of one proto file",
        "decision": "types of all commands",
        "lifecycle": "types of no proto file",
        "queues": "types of one proto file",
        "writer_batches": "types of one proto file",
    },
    "ackq_broker/core/links": {"answers": "replies of rule L5", "permits": "rule L10"},
    "ackq_broker/core/queues": {
        "redrive": "rule Q6",
        "rejections": "rule L28",
        "routing": "rule Q2",
    },
    "ackq_broker/core/state": {
        "block_references": "a data structure",
        "block_sizes": "a data structure",
        "route_cache": "a data structure",
        "signals": "no part of a snapshot",
        "topics": "a data structure",
    },
    "ackq_broker/core/views": {"access": "rule A2"},
    "ackq_broker/journal": {"failpoints": "for crash tests"},
    "ackq_broker/journal/files": {
        "checksum": "CRC-32, by the fastest there is",
        "disk": "every system call",
        "identity": "statx by ctypes",
    },
    "ackq_broker/journal/tools": {"new_history": "an operator's command"},
    "ackq_broker/service/blocks": {
        "message_ids": "rule L23",
        "row_sizes": "rule Q3",
        "sending": "frames to a reader",
    },
    "ackq_broker/service/consuming": {
        "delivery_times": "a data structure",
        "reply_cache": "rule C15",
    },
    "ackq_broker/engine": {
        "backups": "rule O5",
        "block_cache": "a data structure",
        "clock": "rule Q8",
        "disk_alarm": "rule P14",
        "events": "rule M3",
        "garbage": "the interpreter's collector",
        "process_memory": "what the system tells",
        "sync_gate": "rule P4",
        "timer": "rule Q3",
    },
    "ackq_broker/journal/write": {"pace": "rule P14", "sync_times": "a data structure"},
    "ackq_broker/http": {
        "context": "what every path shares",
        "health": "what probes ask",
    },
    "ackq_broker/service/publishing": {"info": "what operators see"},
    "ackq_broker/service/sessions": {"info": "what operators see", "liveness": "rule S3"},
    "ackq_broker/service/links": {"info": "what operators see", "numbers": "a data structure"},
    "ackq_broker/security": {
        "callers": "rule A2",
        "logins": "rule A3",
        "name_pattern": "rule A2",
        "setup": "options of the command line",
        "streams": "rule A5",
        "usage": "rule A5",
        "users_editor": "for an operator's command; the broker does not import it",
        "users_file": "a file that changes",
    },
    "ackq_link": {
        "runner": "several links in a process",
        "vanished": "rule L18",
    },
    "ackq_link/amqp091": {
        "stream_queue": "rule L14",
    },
    "ackq_link/amqp1": {"sections": "bytes alone"},
    "ackq_broker/service/transport": {"access": "rule A1", "descriptors": "rule I6"},
}
# Folders with more or fewer modules.
FOLDER_SIZES = {
    "ackq/cli": "a module for each group of commands, and what they share",
    "ackq/client/consuming": "the application's side, the stream's side and what is between",
    "ackq/client/publishing": "two modes of publishing, and stages",
    "ackq_broker": "the program; its rooms are folders",
    "ackq_broker/core/consuming": "all of it is one state machine",
}


def lines_by_module():
    return {
        path.relative_to(folder.parent).as_posix(): code_lines(path.read_text())
        for folder in FOLDERS
        for path in folder.rglob("*.py")
        if GENERATED not in path.parents and path.name not in ("__init__.py", "__main__.py")
    }


def test_no_module_is_too_long():
    """A module that grows out of a few screens is two."""
    too_long = {name: lines for name, lines in lines_by_module().items() if lines > MOST_LINES}
    assert too_long == {}


def test_a_short_module_is_a_thing_of_its_own():
    """Others are part of the module that uses them."""
    lines = lines_by_module()
    table = {f"{folder}/{name}.py" for folder, names in SMALL.items() for name in names}
    assert {name for name, count in lines.items() if count < FEWEST_LINES} - table == set()
    assert table - set(lines) == set()


def test_folders_hold_a_handful():
    """So that a folder is read at a glance."""
    modules = Counter(name.rpartition("/")[0] for name in lines_by_module())
    odd = {name for name, count in modules.items() if not FEWEST_MODULES <= count <= MOST_MODULES}
    assert unjustified(odd, FOLDER_SIZES) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ('"""Docstring,\n\nof lines."""\n\nimport os\n# why\n', 1),
        ('def f():\n    """One."""\n    return 1\n\nclass A:\n    """Two."""\n    x = ""\n', 4),
        ('"""One."""\nx = """two\nlines"""\n', 2),
    ],
)
def test_what_counts_as_code(source, lines):
    """The check counts statements, not words about them."""
    assert code_lines(source) == lines


def test_a_table_may_name_nothing_else():
    """A break that is not in the table fails, and so does an entry that is no break any more."""
    assert unjustified({"a", "b"}, {"a": "why", "c": "why"}) == ["b", "c"]
    assert unjustified({"a"}, {"a": "why"}) == []
