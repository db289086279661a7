"""Sinks that write each batch of a query once: they record its id, and skip known batches.

Invariant: rows and id of a batch are recorded together, also for batches without rows, as Delta
does with `txnAppId` and `txnVersion`.
"""

from collections import Counter


class SinkDiedError(Exception):
    """The sink's failure that ends its query, before or after the write."""


class ListSink:
    """A sink in memory, which power losses do not affect.

    Args:
        reads: It reads the rows also of batches that it skips.
    """

    def __init__(self, *, reads):
        self.reads = reads
        self.latest = {}
        self.rows = Counter()
        self.figures = Counter()
        self.checkpoint = None
        self.dies = ""

    def __call__(self, rows, batch):
        """Processes one batch as `foreachBatch` calls it."""
        self.figures["batches"] += 1
        query = self.checkpoint.query
        known = batch <= self.latest.get(query, -1)
        if self.reads:
            rows = rows.persist()
            rows.count()
        self._die("before")
        empty = self._write(rows, query, batch, known=known)
        if not known:
            self.latest[query] = batch
        self.figures["skipped" if known else "empty" if empty else "with rows"] += 1
        self._die("after")

    def _die(self, when):
        if self.dies == when:
            self.dies = ""
            self.figures["sink died"] += 1
            raise SinkDiedError(when)

    def _write(self, rows, _query, _batch, *, known):
        """Writes the rows unless they are known; returns whether there are none."""
        names = [] if known else [row.message_id for row in rows.collect()]
        self.rows.update(names)
        return not names

    def written(self):
        """The number of times that each message was written."""
        return self.rows


class DeltaSink(ListSink):
    """A Delta table, which recognises the batches that it has."""

    def __init__(self, spark, folder, *, reads):
        super().__init__(reads=reads)
        self.spark = spark
        self.table = str(folder / "table")

    def _write(self, rows, query, batch, *, known):
        before = 0 if known else self.written().total()
        writer = rows.write.format("delta").mode("append")
        writer.option("txnAppId", query).option("txnVersion", batch).save(self.table)
        return not known and self.written().total() == before

    def written(self):
        """The number of times that each message is in the table."""
        from delta.tables import DeltaTable

        if not DeltaTable.isDeltaTable(self.spark, self.table):
            return Counter()
        found = self.spark.read.format("delta").load(self.table).collect()
        return Counter(row.message_id for row in found)
