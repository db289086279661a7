"""Messages of queue `orders` among many that are purged, so that the journal is compacted."""

import pyarrow as pa

from ackq.client import Publisher
from tests.eventually import eventually

_ROWS = 200
_BODY_BYTES = 20_000


def publish_among(endpoint, *bodies, **columns):
    """Publishes bodies to `orders`, among messages to `churn`; columns have one value for all."""
    found = [*bodies, *[bytes(_BODY_BYTES)] * _ROWS]
    keys = ["orders"] * len(bodies) + ["churn"] * _ROWS
    values = {name: [value] * len(found) for name, value in columns.items()}
    with Publisher(endpoint) as out:
        out.publish_batch(pa.table({"body": found, "routing_key": keys, **values}))


def wait_compacted(broker, batches):
    """Waits until the journal has fewer segments than this number of batches filled."""
    full = batches * _ROWS * _BODY_BYTES // (16 << 20)
    segments = broker.data_dir.glob
    eventually("compaction", lambda: len(list(segments("journal-*.seg"))) < full)
