"""The arguments that decide what a job does with a message, kept with its checkpoint.

Invariant: a micro-batch has effects under one set of arguments only. Its first run settles some
messages and writes others; a run after a crash repeats both, and the broker knows the repetition
by the batch's id (K12), not by its rows. Other arguments would settle again what was written, and
write what was settled. So a batch notes its arguments before its first effect, and a batch that was
begun under others is refused before any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from kit import JobError

# The folder in the checkpoint; it goes where a copy of the checkpoint goes.
FOLDER: Final = "ackq-arguments"
Values = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Decisions:
    """The arguments of a run that decide what becomes of a message.

    Attributes:
        checkpoint: The checkpoint of the query, in any file system of Spark.
        values: The arguments by their name on the command line, such as `--repair`.
    """

    checkpoint: str
    values: Values

    def hold(self, spark: SparkSession, batch_id: int) -> None:
        """Notes the arguments of a batch that begins; compares those of one that runs again.

        A batch that an older version of the job began has no note, and takes these arguments.

        Raises:
            JobError: The batch was begun under other arguments. Nothing was done.
        """
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
            self.compare(noted, batch_id)
            return
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

    def compare(self, noted: Values, batch_id: int) -> None:
        """Raises JobError, in one line, if a batch was begun under other arguments."""
        names = [*self.values, *(name for name in noted if name not in self.values)]
        differ = [name for name in names if noted.get(name) != self.values.get(name)]
        if differ:
            were = "; ".join(f"{name} was {json.dumps(noted.get(name))}" for name in differ)
            raise JobError(
                f"Micro-batch {batch_id} was begun with other arguments, and is not finished:"
                f" {were}. Nothing was done. Run the job once with those, until it ends; after that"
                " the same checkpoint takes new ones. (A new checkpoint now could write messages of"
                " this batch twice.)"
            )
