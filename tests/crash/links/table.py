"""The rows of a Delta table that is only appended to, read from its log without Spark."""

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

COLUMNS = ("message_id", "body")


class TableRows:
    """The rows in a table so far.

    Args:
        folder: The table's folder, which may not exist yet.

    Attributes:
        rows: (message_id, body) of each row, in the order of the table's versions.
    """

    def __init__(self, folder):
        self._folder = Path(folder)
        self._version = 0
        self.rows = []

    def read(self):
        """Adds the rows committed since the last read; returns the number of all rows."""
        while (log := self._folder / "_delta_log" / f"{self._version:020}.json").exists():
            for line in log.read_text().splitlines():
                action = json.loads(line)
                assert "remove" not in action, f"{log} removes rows"
                if "add" in action:
                    self._add(self._folder / unquote(action["add"]["path"]))
            self._version += 1
        return len(self.rows)

    def _add(self, file):
        table = pq.read_table(file, columns=list(COLUMNS), partitioning=None)
        columns = (table[name].to_pylist() for name in COLUMNS)
        self.rows += zip(*columns, strict=True)


def table_folder(folder, queue):
    """The folder in which a driver has the table of a queue."""
    return Path(folder) / f"table-{queue}"
