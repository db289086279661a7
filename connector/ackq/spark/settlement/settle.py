"""`settle`: says from a query what becomes of the messages of a batch (S6, K8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    """Settles messages of the micro-batch in hand otherwise than by accepting them.

    Call it in `foreachBatch`, with rows that still have the source's `delivery_tag`:

        def each(rows, batch_id):
            bad = rows.filter("not valid")
            settle(bad, "rejected", reason="not valid", endpoint=endpoint)
            rows.filter("valid").write. ...  # the guarded write comes last

    The outcomes take effect together, and with Spark's checkpoint of the batch: what is not settled
    is accepted then. When the batch is run again, the settle calls of the last run that made any
    are the ones that count. Hence **settle before a guarded write**, one that is skipped when its
    batch comes again (`txnAppId`/`txnVersion`, or a check of your own): a run that ends between the
    two has settled all the same, while behind the guard the run that comes again would not settle.

    Args:
        df: The rows to settle; others are left alone. Its columns `delivery_tag` and, for what the
            arguments leave open, `outcome`, `reason` and `delay` are used; the rest stays where it
            is. A column `reason` or `delay` may be null, and need not be there. Of a tag that comes
            twice, the last row counts.
        outcome: For all rows: `accepted`, `failed` (delivered again, counts against the queue's
            delivery limit), `rejected` (to the dead-letter queue) or `released` (delivered again).
            None: the column `outcome` says it row by row.
        reason: Why, for failed and rejected; cut to about 1,000 characters.
        delay: How long failed and released rows wait before they are delivered again: a text such
            as "30s", or milliseconds, 1 or more. None: what the queue says, else 1 s doubling to
            5 min.
        discard: Let rejected messages of a queue without a dead-letter queue be lost.
        **options: As of `.write.format("ackq")`: `endpoint`, and `session` in a batch job and on
            Spark Connect, where nothing else says whose messages they are.

    Raises:
        SchemaError: A column is missing or of the wrong type.
        InvalidArgumentError: An argument is not what it takes.
        PySparkException: Whatever a row or the broker refuses, with the `ackq.errors` class and its
            message inside; nothing is settled then.
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
    with _active(df.sparkSession):
        df.select(*names).write.format("ackq").mode("append").options(**texts).save()


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Makes a session the calling thread's active one, where Spark looks for the format (K9).

    A Python thread that is not Spark's own has none. On Spark Connect it is the server's matter.
    """
    own = getattr(session, "_jsparkSession", None)
    if own is None:
        yield
        return
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]  # noqa: SLF001 - no public way
    before = sessions.getActiveSession()
    sessions.setActiveSession(own)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _text(value: object) -> str:
    """An option as Spark hands it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)
