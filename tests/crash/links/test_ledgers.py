"""The basis of the link ledgers: the rows of a Delta table."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crash.links.table import TableRows


@pytest.fixture
def table(tmp_path):
    """Commits one version after another: rows of (message_id, body)."""
    log = tmp_path / "_delta_log"
    log.mkdir()

    def commit(rows, **action):
        version = len(list(log.glob("*.json")))
        name = f"part {version}.parquet"
        names, bodies = zip(*rows, strict=True)
        columns = {"message_id": pa.array(names), "body": pa.array(bodies, pa.binary())}
        pq.write_table(pa.table(columns), tmp_path / name)
        lines = [{"commitInfo": {}}, {"add": {"path": name.replace(" ", "%20")}}, action]
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))

    commit.folder = tmp_path
    return commit


def test_the_rows_of_a_table(table):
    """K1: each version's rows are read once, however often the table is read."""
    rows = TableRows(table.folder)
    assert rows.read() == 0
    table([("1", b"one"), ("2", b"two")])
    assert rows.read() == 2
    table([("3", b"three")])
    table([("3", b"three")])
    assert rows.read() == rows.read() == 4
    assert rows.rows == [("1", b"one"), ("2", b"two"), ("3", b"three"), ("3", b"three")]


def test_a_table_that_removes_rows_is_no_ledger(table):
    """K1: a table that removes rows is refused, as removed rows would be counted."""
    table([("1", b"one")], remove={"path": "x"})
    with pytest.raises(AssertionError, match="removes rows"):
        TableRows(table.folder).read()
