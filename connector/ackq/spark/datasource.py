"""The data source `ackq`: checks options when Spark creates it, then delegates to subpackages.

Light to import: everything that needs pyarrow or grpc is imported by the method that uses it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ackq.errors import UnsupportedError
from ackq.spark.options import options as parse
from ackq.spark.options.table import Use, check

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class AckqDataSource(DataSource):
    """Reads and writes acknowledged queues: `format("ackq")`, batch and streaming (K9).

    Raises:
        UnknownOptionError: At `load()` or `start()`, for an option that does not exist.
        InvalidArgumentError: At `load()` or `start()`, for a value that is invalid for its option.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check(self.options)

    @classmethod
    def name(cls) -> str:
        """The short name, as in `format("ackq")`."""
        return "ackq"

    def schema(self) -> StructType:
        """The columns of `load()`, the same for a stream and a batch."""
        from ackq.spark import schema  # noqa: PLC0415 - pyarrow
        from ackq.wire import columns  # noqa: PLC0415 - pyarrow

        several = len(check(self.options).get("endpoint", ())) > 1
        return schema.default(schema.STREAMED if several else columns.DELIVERED)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The streaming source (K1, K2)."""
        from ackq.spark.engine import SAYS_START  # noqa: PLC0415 - pyarrow

        if SAYS_START:
            from ackq.spark.source.reader import (  # noqa: PLC0415 - pyarrow
                AckqStreamReader as StreamReader,
            )
        else:
            from ackq.spark.source.older_reader import (  # noqa: PLC0415 - pyarrow
                OlderStreamReader as StreamReader,
            )
        return StreamReader(parse.source(self.options), schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read: a browse of a queue (Q5), or a session's accepted batches (S13)."""
        if parse.reads_session(self.options):
            from ackq.spark.source.retained import (  # noqa: PLC0415 - pyarrow
                RetainedReader,
            )

            return RetainedReader(parse.retained(self.options), schema)
        from ackq.spark.source.browse import AckqBrowser  # noqa: PLC0415 - pyarrow

        return AckqBrowser(parse.browse(self.options), schema)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceStreamWriter:
        """The sink (K3)."""
        from ackq.spark.sink.writer import stream_writer  # noqa: PLC0415 - pyarrow

        if overwrite:
            raise UnsupportedError(
                "The sink does not take output mode 'complete': the messages of a queue cannot be"
                " replaced. Use .outputMode('append').",
                mode="complete",
            )
        return stream_writer(parse.sink(self.options, Use.SINK), schema)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceWriter:
        """A batch write (K12), or with the option `settle` a settling write (K8)."""
        if overwrite:
            raise UnsupportedError(
                "A batch write does not take mode 'overwrite': the messages of a queue cannot be"
                " replaced. Use .mode('append').",
                mode="overwrite",
            )
        if parse.settles(self.options):
            from ackq.spark.settlement.writer import (  # noqa: PLC0415 - pyarrow
                AckqSettlementWriter,
            )

            return AckqSettlementWriter(parse.settle(self.options), schema)
        from ackq.spark.sink.writer import batch_writer  # noqa: PLC0415 - pyarrow

        return batch_writer(parse.sink(self.options, Use.BATCH), schema)
