"""What the README says is so."""

import re
from pathlib import Path

import pytest

from ackq import limits
from ackq.spark.options import options
from ackq.spark.options.table import OPTIONS, Use

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTION = README.partition("\n## Options\n")[2].partition("\n## ")[0]
TABLE = [
    tuple(cell.strip() for cell in line.split("|")[1:4])
    for line in SECTION.splitlines()
    if line.startswith("| `")
]
USES = {
    "all": set(Use),
    "read": {Use.SOURCE, Use.BROWSE},
    "read and write": set(Use) - {Use.SETTLE},
    "settle": {Use.SETTLE},
    "streaming read, settle": {Use.SOURCE, Use.SETTLE},
    "streaming read": {Use.SOURCE},
    "batch read": {Use.BROWSE},
    "write": {Use.SINK, Use.BATCH},
    "batch write": {Use.BATCH},
}


def test_the_options_table_is_whole():
    """Every option of the connector is in the table, and no other."""
    named = [name for names, *_ in TABLE for name in re.findall(r"\w+", names)]
    assert sorted(named) == sorted(option.name for option in OPTIONS.values())


@pytest.mark.parametrize("row", [row for row in TABLE if row[1]], ids=lambda row: row[0])
def test_the_options_table_says_who_takes_an_option(row):
    """The second column is where the connector takes it."""
    for name in re.findall(r"\w+", row[0]):
        assert OPTIONS[name.lower()].uses == USES[row[1]]


def test_the_options_table_says_the_defaults():
    """Defaults that are numbers are those of the connector."""
    default = {names: text.strip("`") for names, _, text in TABLE}
    source = options.source({"endpoint": "host:1", "queue": "q"})
    assert default["`maxMessagesPerTrigger`"] == f"{source.max_messages:,}"
    assert default["`maxBytesPerTrigger`"] == f"{source.max_bytes // limits.MIB}m"
    split = source.split
    assert default["`maxBytesPerPartition`"] == f"{split.max_bytes_per_partition // limits.MIB}m"
    assert default["`retryTimeout`"] == f"{source.connection.retry_ms // 1000}s"
    waits = {"endpoint": "host:1", "queue": "q", "minMessagesPerTrigger": "2"}
    minutes = options.source(waits).max_delay_ms // 60_000
    assert default["`maxTriggerDelay`"] == f"{minutes}m"


def test_links_lead_somewhere():
    """A file that the README links to is there."""
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
