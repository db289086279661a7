"""The arguments that decide what a job does with a message, kept with its checkpoint.

Invariant: a micro-batch is written under one set of arguments only. Its first run settles some
messages and writes others; a run after a crash repeats both, and the broker knows the repetition
by the batch's id (K12), not by its rows. Other arguments would settle again what was written, and
write what was settled. So a batch notes its arguments before its first effect, and one that was
written under others is refused before any. After a run that wrote nothing the next one may have
other arguments, as after a mistake in these: its settle call replaces that of the earlier run (S6).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from ackq import client
from ackq.client import Broker
from ackq.spark import txn_options
from ackq.spark.options import options
from ackq.spark.options.table import Use
from ackq.spark.sink.stage import transaction
from kit import JobError

# The folder in the checkpoint; it goes where a copy of the checkpoint goes.
FOLDER: Final = "ackq-arguments"
Values = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Decisions:
    """The arguments of a run that decide what becomes of a message.

    Attributes:
        checkpoint: The checkpoint of the query, in any file system of Spark.
        values: The arguments by their name on the command line, such as `--repair`; `--target` is
            the queue that a batch is written to, without it each row names one.
        broker: The broker that a batch is written to.
        name: The name of that write, as of `txn_options`.
    """

    checkpoint: str
    values: Values
    broker: Broker
    name: str

    def hold(self, rows: DataFrame, batch_id: int) -> dict[str, str]:
        """Notes the arguments of a batch that begins; compares those of one that runs again.

        A batch that an older version of the job began has no note, and takes these arguments.

        Returns:
            The options of the batch's write, as of `txn_options`.

        Raises:
            JobError: The batch was written under other arguments. Nothing was done.
        """
        spark, once = rows.sparkSession, txn_options(rows, batch_id, self.name)
        jvm: Any = spark._jvm  # noqa: SLF001
        hadoop = jvm.org.apache.hadoop.fs
        folder = hadoop.Path(self.checkpoint, FOLDER)
        files = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
        note = hadoop.Path(folder, str(batch_id))
        if files.exists(note):
            opened = files.open(note)
            try:
                noted = json.loads(bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(opened)))
            finally:
                opened.close()
            if noted == self.values:
                return once
            if self._written(noted, once):
                raise self._refusal(noted, batch_id)
            files.delete(note, False)
        files.mkdirs(folder)
        old = [each.getPath() for each in files.listStatus(folder)]
        # A note appears whole: a crash before the rename leaves none, and the batch did nothing.
        unfinished = hadoop.Path(folder, f"{batch_id}.new")
        written = files.create(unfinished, True)
        try:
            written.write(bytearray(json.dumps(self.values), "utf-8"))
        finally:
            written.close()
        if not files.rename(unfinished, note):
            raise JobError(f"The file {note} could not be written.")
        for each in old:
            if each.getName() != unfinished.getName():
                files.delete(each, False)
        return once

    def _written(self, noted: Values, once: Mapping[str, str]) -> bool:
        """Whether the broker has the batch's write to the target in a note."""
        target = {"queue": str(noted["--target"])} if "--target" in noted else {}
        write = options.sink({**self.broker.options(), **target, **once}, Use.BATCH)
        known = client.prepare_batch(
            self.broker,
            writer=transaction(write),
            batch_id=write.txn_version or 0,
            run_id="",
            stages=(),
            single=False,
            target="",
            edges="",
        )
        return known.committed

    def _refusal(self, noted: Values, batch_id: int) -> JobError:
        """The error, in one line, for a batch that was written under other arguments."""
        names = [*self.values, *(name for name in noted if name not in self.values)]
        differ = [name for name in names if noted.get(name) != self.values.get(name)]
        were = "; ".join(f"{name} was {json.dumps(noted.get(name))}" for name in differ)
        return JobError(
            f"Micro-batch {batch_id} was written with other arguments, and is not finished:"
            f" {were}. Nothing was done. Run the job once with those, until it ends; after that"
            " the same checkpoint takes new ones. (A new checkpoint now could write messages of"
            " this batch twice.)"
        )
