"""A link's stream by raw stubs."""

import queue
import secrets

import grpc
import pytest

from ackq.v1 import links_pb2 as pb
from ackq.v1 import sessions_pb2
from tests.fakes.blocks import batch, encoded
from tests.fakes.raw_client import STREAM_S, error_of

SOURCE = "amqp://there/orders"


def columns(ids):
    """The columns of deliveries with these ids: a body, and a key made of the id."""
    return {
        "rows": batch(body=[b"%d" % each for each in ids]),
        "keys": b"".join(each.to_bytes(16, "little") for each in ids),
        "checks": b"".join(each.to_bytes(8, "little") for each in ids),
    }


class RawLink:
    """An opened stream of a link, by raw stubs."""

    def __init__(self, client, *, token=None, **opening):
        self.token = token or secrets.token_bytes(16)
        self._requests = queue.SimpleQueue()
        holder = sessions_pb2.Holder(token=self.token, host="h", pid=1, application="test")
        fields = {"link": "l", "source": SOURCE, "queue": "q", "ack": 1, "holder": holder}
        self.send(open=pb.LinkOpen(**(fields | opening)))
        self.call = client.links.Link(iter(self._requests.get, None), timeout=STREAM_S)

    def send(self, block=b"", **kind):
        self._requests.put(pb.LinkRequest(header=pb.LinkHeader(**kind), block=block))

    def subscribe(self):
        self.send(subscribe=pb.LinkSubscribe())
        while (answer := next(self.call)).WhichOneof("kind") != "subscribed":
            pass
        return answer.subscribed.subscription

    def deliver(self, present, first, ids, **changes):
        beside = columns(ids)
        fields = {
            "subscription": present,
            "first_number": first,
            "rows": len(ids),
            "lowest_unanswered": first,
            "keys": beside["keys"],
            "checks": beside["checks"],
        }
        block = changes.pop("block", encoded(body=[b"%d" % each for each in ids]))
        self.send(deliveries=pb.LinkDeliveries(**(fields | changes)), block=block)

    def stored(self):
        while (answer := next(self.call)).WhichOneof("kind") != "stored":
            pass
        return answer.stored

    def error(self):
        """The error that the stream ends with."""
        with pytest.raises(grpc.RpcError) as failed:
            for _ in self.call:
                pass
        return error_of(failed.value)[0]

    def close(self):
        self._requests.put(None)
        for _ in self.call:
            pass
