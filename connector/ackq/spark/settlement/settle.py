"""`settle`: settles the messages of a batch from within a query (S6, K8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackq.spark.options import options as parse
from ackq.spark.options.values import BY_COLUMN
from ackq.spark.settlement import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def settle(
    df: DataFrame,
    outcome: str | None = None,
    *,
    reason: str | None = None,
    delay: str | int | None = None,
    discard: bool = False,
    **options: object,
) -> None:
    """Settles messages of the current micro-batch, instead of accepting them with it.

    Call it in `foreachBatch`, with rows that still have the source's `delivery_tag`:

        def each(rows, batch_id):
            bad = rows.filter("not valid")
            settle(bad, "rejected", reason="not valid", endpoint=endpoint)
            rows.filter("valid").write. ...  # the guarded write comes last

    The outcomes take effect together, with Spark's checkpoint of the batch; messages that are not
    settled are accepted then. When the batch is replayed, the settle calls of the last run that
    made any count. Hence **settle before a guarded write**, one that is skipped in a replay
    (`txnAppId`/`txnVersion`, or a check of your own): a run that ends between the two has settled,
    whereas a settle call after the guard would be skipped by the replay.

    Args:
        df: The rows to settle. Its column `delivery_tag` is used, `edge` if it has one, and the
            columns `outcome`, `reason` and `delay` for which there is no argument; other columns
            are ignored. The columns `reason` and `delay` are optional and may be null. If a tag
            occurs twice, the last row counts.
        outcome: Outcome of all rows: `accepted`, `failed` (requeued, counts against the queue's
            delivery limit), `rejected` (dead-lettered) or `released` (requeued). None: the column
            `outcome` has each row's.
        reason: Reason of failed and rejected rows; truncated to about 1,000 characters.
        delay: Redelivery delay of failed and released rows: a text such as "30s", or milliseconds,
            1 or more. None: the queue's, else 1 s doubling to 5 min.
        discard: Lose rejected messages of a queue without a dead-letter queue.
        **options: Options of `.write.format("ackq")`: `endpoint`, and `session` in a batch job and
            on Spark Connect, where nothing else identifies the lease.

    Raises:
        SchemaError: A column is missing or of the wrong type.
        InvalidArgumentError: An argument has an invalid value.
        PySparkException: A row or the broker's answer is an error, whose `ackq.errors` class and
            message it contains; nothing is settled then.
    """
    given: dict[str, object] = {
        "settle": BY_COLUMN if outcome is None else outcome,
        "reason": reason,
        "delay": delay,
        "discard": discard or None,
        **options,
    }
    texts = {name: _text(value) for name, value in given.items() if value is not None}
    names = rows.columns(parse.settle(texts), df.columns)
    for name in names:
        if name not in df.columns:
            raise rows.missing(name, df.columns)
    _activate(df.sparkSession)
    df.select(*names).write.format("ackq").mode("append").options(**texts).save()


def _activate(session: SparkSession) -> None:
    """Gives the calling thread an active session, where Spark looks up formats (K9).

    A Python thread not started by Spark has none. On Spark Connect the server does this.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - importing this module costs nothing
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    if not is_remote() and SparkSession.getActiveSession() is None:
        # The public call that sets the active session.
        session.createDataFrame([], "delivery_tag BIGINT")


def _text(value: object) -> str:
    """An option in the form in which Spark passes it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)
