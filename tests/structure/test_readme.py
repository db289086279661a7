"""The READMEs agree with the code: links, commands, code, tables, the drawing of the rooms."""

import ast
import contextlib
import functools
import html
import importlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from ackq import limits
from ackq.cli.commands import ackq
from ackq.cli.context import LaterCommand
from ackq.client import Publisher
from ackq.spark import schema
from ackq.spark.options import options
from ackq.spark.options.table import OPTIONS, Use
from ackq.wire import columns
from ackq_broker.cli import commands as broker_command
from ackq_broker.cli.options import DEFAULTS
from ackq_broker.cli.options import OPTIONS as SERVE_OPTIONS

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "proto", "connector", "broker_stub", "tests")
PAGES = {".": ("README.md", "CONTRIBUTING.md", "SECURITY.md")}
READMES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for folder in FOLDERS
    for pattern in PAGES.get(folder, ("**/README.md", "docs/*.md", "design/*.md"))
    for path in sorted((ROOT / folder).glob(pattern))
}
SPARK = READMES["connector/docs/spark.md"]
BROKER = READMES["broker_stub/README.md"]
OPERATE = READMES["broker_stub/docs/operate.md"]
USES = {
    "all": set(Use),
    "read": {Use.SOURCE, Use.BROWSE},
    "read and write": set(Use) - {Use.SETTLE},
    "settle": {Use.SETTLE},
    "read, settle": {Use.SOURCE, Use.BROWSE, Use.SETTLE},
    "streaming read": {Use.SOURCE},
    "streaming read, write": {Use.SOURCE, Use.SINK, Use.BATCH},
    "batch read": {Use.BROWSE},
    "write": {Use.SINK, Use.BATCH},
    "batch write": {Use.BATCH},
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Programs whose own options are not checked here.
OTHERS = {"export", "pip", "spark-submit", "spark-class", "spark-pipelines", "mvn", "tar"}
OTHERS |= {"nats-server", "artemis", "artemis-service", "mkdocs", "protoc"}


def table(readme, title):
    """The rows of a section's table whose first cell is code, as tuples of cells."""
    section = readme.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| `", line)]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def blocks(readme, language):
    """The fenced blocks of one language."""
    return [text for kind, text in FENCE.findall(readme) if kind == language]


# --- tables ---

OPTION_ROWS = table(SPARK, "Options")


def test_the_options_table_is_whole():
    """Every option of the connector is in the table, and no other."""
    named = [name for names, *_ in OPTION_ROWS for name in re.findall(r"\w+", names)]
    assert sorted(named) == sorted(option.name for option in OPTIONS.values())


@pytest.mark.parametrize("row", [row for row in OPTION_ROWS if row[1]], ids=lambda row: row[0])
def test_the_options_table_says_who_takes_an_option(row):
    """The second column names the uses in which the connector takes an option."""
    for name in re.findall(r"\w+", row[0]):
        assert OPTIONS[name.lower()].uses == USES[row[1]]


def test_the_options_table_says_the_defaults():
    """Defaults that are numbers are those of the connector."""
    default = {names: text.strip("`") for names, _, text, *_ in OPTION_ROWS}
    source = options.source({"endpoint": "host:1", "queue": "q"})
    assert default["`maxMessagesPerTrigger`"] == f"{source.max_messages:,}"
    assert default["`maxBytesPerTrigger`"] == f"{source.max_bytes // limits.MIB}m"
    split = source.split
    assert default["`maxBytesPerPartition`"] == f"{split.max_bytes_per_partition // limits.MIB}m"
    assert default["`retryTimeout`"] == f"{source.broker.retry_ms // 1000}s"
    waits = {"endpoint": "host:1", "queue": "q", "minMessagesPerTrigger": "2"}
    minutes = options.source(waits).max_delay_ms // 60_000
    assert default["`maxTriggerDelay`"] == f"{minutes}m"


def test_the_columns_table_is_whole():
    """The table has every column with its type, and where it is read or written."""
    here = {}
    for names, kind, *where in table(SPARK, "Columns"):
        known = (html.unescape(kind), *map(bool, where))
        here |= dict.fromkeys(re.findall(r"\w+", names), known)
    types = {**columns.STORED, **schema.STREAMED, **columns.BROWSED}
    written = (*columns.PUBLISHABLE, *schema.ROUTING)
    assert here == {
        name: (
            from_arrow_type(types[name][1]).simpleString() if name in types else "string",
            name in schema.STREAMED,
            name in columns.BROWSED,
            name in written,
        )
        for name in {**types, **dict.fromkeys(written)}
    }


def test_the_queue_properties_table_is_whole():
    """The table has every option of `ackq queue declare`, except those of all commands."""
    named = {name for row in table(OPERATE, "Queue properties") for name in flags(row[0])}
    common = {"--endpoint", "--json"}
    assert named == set(known_options(command_of(ackq, ["queue", "declare"]))) - common


def test_the_configuration_table_is_whole():
    """Every option of `ackq-broker serve` with its default, in the order of its help."""
    rows = {cell.strip("`-"): default for cell, default, _ in table(OPERATE, "Configuration")}
    assert list(rows) == list(SERVE_OPTIONS)
    for name, default in rows.items():
        known = DEFAULTS[name]
        if isinstance(known, tuple):
            assert default == f"`{','.join(map(str, known))}`"
        elif isinstance(known, int) and known:
            assert default == f"`{known // limits.MIB}MiB`"
        elif isinstance(known, str):
            assert default == f"`{known}`"


def test_the_drawing_of_the_rooms_is_that_of_the_contracts():
    """The boxes of a layer, from above, are the layers of its import-linter contract."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {each["name"]: each for each in config["tool"]["importlinter"]["contracts"]}
    (drawing,) = blocks(BROKER, "mermaid")
    for layer, contract, inside in (
        ("broker", "broker: layers", "ackq_broker."),
        ("core", "core: rooms", "ackq_broker.core."),
        ("service", "service: rooms", "ackq_broker.service."),
        ("journal", "journal: rooms", "ackq_broker.journal."),
    ):
        part = drawing.partition(f"subgraph {layer}[")[2].partition(" end\n")[0]
        boxes = list(dict.fromkeys(re.findall(r'\w+\["([^"]+)"\]', part)))
        assert boxes == [line.replace(inside, "") for line in contracts[contract]["layers"]]


# --- links ---


def targets(readme):
    """The link targets of a README, outside of code."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", readme))
    return re.findall(r"\]\(([^)\s]+)\)", prose)


def anchors(text):
    """The anchors of a Markdown file: explicit ones, and those of its headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"></a>', text))


@pytest.mark.parametrize("name", READMES)
def test_links_lead_somewhere(name):
    """Every file and every anchor that a README links to exists."""
    broken = []
    for link in targets(READMES[name]):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        file = ROOT / name if not path else (ROOT / name).parent / path
        if not file.exists() or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            broken.append(link)
    assert broken == []


def test_the_readme_links_to_every_readme():
    """Every README is one or two links away from the root README."""
    near = {"README.md"}
    for _ in range(2):
        for name in sorted(near):
            for link in targets(READMES[name]):
                file = os.path.normpath(Path(name).parent / link.partition("#")[0])
                near |= {file} & set(READMES)
    assert sorted(set(READMES) - near) == []


# --- code and commands ---


PYTHON = [
    pytest.param(text, id=f"{name}-{number}")
    for name, readme in READMES.items()
    for number, text in enumerate(blocks(readme, "python"))
]


@pytest.mark.parametrize("text", PYTHON)
def test_python_blocks_import_what_there_is(text):
    """A Python block is valid, and its imports from ackq exist."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("ackq"):
            module = importlib.import_module(node.module)
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


GUIDE = READMES["connector/docs/python-client.md"]
CLIENT = [text for text in blocks(GUIDE, "python") if "Channel(" in text]


@pytest.mark.parametrize(
    ("text", "published"), [(CLIENT[0], 1), (CLIENT[1], 2001)], ids=["threads", "asyncio"]
)
def test_the_client_publishes_and_consumes(broker, admin, text, published):
    """The client's blocks without Spark run unchanged, except for the endpoint."""
    admin.declare_queue("orders")
    exec(text.replace("127.0.0.1:5775", broker.endpoint), {})  # noqa: S102 - our own text
    info = admin.queue("orders")
    assert (info.ready, info.unacked, info.accepted) == (published - 1, 0, 1)


def test_the_loop_of_a_consumer_outlives_the_broker(broker, admin):
    """C17: the README's consumer loop reports the reconnect to a restarted broker, and goes on."""
    admin.declare_queue("orders")
    program = CLIENT[2].replace("127.0.0.1:5775", broker.endpoint)
    command = [sys.executable, "-u", "-c", program]
    loop = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        with Publisher(broker.endpoint, routing_key="orders") as out:
            out.publish("before")
        assert loop.stdout.readline() == "b'before'\n"
        broker.kill()
        broker.restart()
        with Publisher(broker.endpoint, routing_key="orders") as out:
            out.publish("after")
        said = list(iter(loop.stdout.readline, "b'after'\n"))
    finally:
        loop.kill()
        loop.communicate()
    # A message that was being accepted when the broker was killed may come again.
    assert [line for line in said if line != "b'before'\n"] == [
        line for line in said if line.startswith("Reconnected(cause=")
    ]
    assert len(said) in (1, 2)


def commands(readme):
    """The commands of a README's shell blocks, and our own commands in its text."""
    for text in blocks(readme, "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            yield from line.split(" && ")
    for text in re.findall(r"`([^`\n]+)`", FENCE.sub("", readme)):
        if re.match(r"(ackq|ackq-broker|python|pytest) ", text):
            yield text


@pytest.mark.parametrize("name", READMES)
def test_commands_are_there(name):
    """Every subcommand, program, module and option that a README names exists."""
    for command in commands(READMES[name]):
        words = [
            word for word in shlex.split(command, comments=True) if not re.match(r"[A-Z_]+=", word)
        ]
        check(words, command)


def check(words, command):
    """Fails if a command has an unknown program or unknown options."""
    program, *rest = words
    program = program.rpartition("/")[2]
    if program in OTHERS:
        # The submitted program is ours.
        scripts = [place for place, word in enumerate(rest) if (ROOT / word).is_file()]
        for place in scripts[:1]:
            check(["python", *rest[place:]], command)
    elif program in {"ackq", "ackq-broker"}:
        found = command_of({"ackq": ackq, "ackq-broker": broker_command.main}[program], rest)
        assert unknown(rest, known_options(found)) == [], command
    elif program in {"python", "python3"}:
        check_python(rest, command)
    elif program == "pytest":
        check_python(["-m", "pytest", *rest], command)
    else:
        pytest.fail(f"no known program: {command}")


def check_python(words, command):
    """Checks a program of this tree and its options, or a module."""
    if words[0] == "-m" and not words[1].startswith("tests."):
        importlib.import_module(words[1])
        paths = [word for word in words[2:] if word.startswith("tests/")]
        assert [path for path in paths if not (ROOT / path).exists()] == [], command
    elif words[0] != "relay.py":
        parts = 2 if words[0] == "-m" else 1
        assert unknown(words[parts:], flags(help_of(*words[:parts]))) == [], command


def command_of(group, words):
    """The click command that words lead to; fails when there is no such subcommand."""
    for word in words:
        if isinstance(group, click.Group) and not word.startswith("-"):
            assert word in group.commands, f"{group.name} has no command {word}"
            group = group.commands[word]
    return group.load() if isinstance(group, LaterCommand) else group


def known_options(command):
    """The long options of a click command."""
    parameters = [each for each in command.params if isinstance(each, click.Option)]
    return [name for each in parameters for name in (*each.opts, *each.secondary_opts)]


def unknown(words, known):
    """The long options among words that are not known."""
    return [word for word in flags(" ".join(words)) if word not in {*known, "--help", "--version"}]


def flags(text):
    """The long options that a text names."""
    return re.findall(r"(?<![\w-])--[a-z][\w-]*", text)


@functools.cache
def help_of(*program):
    """The output of a Python program of this tree with `--help`, run in this process."""
    path = ROOT / (program[1].replace(".", "/") if program[0] == "-m" else program[0])
    path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", [path.name, "--help"])
        patch.syspath_prepend(str(path.parent))
        code = 0
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    assert not code, program
    return out.getvalue()
