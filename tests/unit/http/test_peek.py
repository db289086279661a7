"""Messages as the dashboard shows them: bounded, and plain (M5, Q5)."""

import base64

from ackq import limits
from ackq.v1 import messages_pb2 as pb
from ackq.wire import frame
from ackq_broker.http.peek import MOST_MESSAGES, peek, rows_of
from tests.fakes.blocks import encoded


def sent(first=1, leased=(0,), counts=(1,), rows=None, **columns):
    runs = rows or (len(columns["body"]),)
    firsts = [first + sum(runs[:at]) for at in range(len(runs))]
    header = pb.DeliveryRuns(
        first_tag=firsts,
        rows=runs,
        delivery_count=counts,
        queue_index=[0] * len(runs),
        queues=["q"],
        leased=leased,
    )
    return frame.Frame(header, encoded(**columns))


def test_columns():
    """M5: a row's own column values override those of the block; null values are left out."""
    (row, other) = rows_of(
        sent(
            body=[b"", None],
            message_id=["one", None],
            headers=[[("a", "b")], None],
            published_at=[5_000_000, None],
            persistent=[False, None],
            published_at_us=9,
            delivery_mode=pb.DELIVERY_MODE_PERSISTENT,
        )
    )
    assert (row["message_id"], row["headers"], row["header_count"]) == ("one", [["a", "b"]], 1)
    assert (row["published_at_us"], row["persistent"], row["body_bytes"]) == (5_000_000, False, 0)
    assert "message_id" not in other
    assert (other["published_at_us"], other["persistent"], other["headers"]) == (9, True, [])


def test_what_is_large_is_cut():
    """M5: large bodies, texts and headers are truncated, and the true sizes are given."""
    headers = [(f"h{number}", "v" * 5000) for number in range(150)]
    (row,) = rows_of(sent(body=[b"x" * 100_000], message_id=["m" * 5000], headers=[headers]))
    assert (len(base64.b64decode(row["body"])), row["body_bytes"]) == (16 * limits.KIB, 100_000)
    assert (len(row["headers"]), row["header_count"]) == (100, 150)
    assert len(row["message_id"]) == len(row["headers"][0][1]) == 1025


class Browse:
    """A browse call that sends frames as a servicer does, and notes the request."""

    def __init__(self, *frames):
        self.frames = frames
        self.sent = 0

    async def __call__(self, request, write):
        self.request = request
        for each in self.frames:
            await write(each)
            self.sent += 1


async def here(work):
    return work()


async def test_a_bounded_browse():
    """M5: a peek asks for 100 messages at most, and for one more to know whether more follow."""
    browse = Browse(sent(body=[b"a"]), sent(2, body=[b"b"]))
    for asked, positions, more in ((10**9, [1, 2], False), (1, [1], True)):
        found = await peek(browse, here, "q", 3, asked)
        assert ([row["position"] for row in found.rows], found.more) == (positions, more)
        assert (browse.request.queue, browse.request.first_position) == ("q", 3)
        assert browse.request.max_messages == min(asked, MOST_MESSAGES) + 1


async def test_large_messages_end_it_early():
    """M5, I6: a peek ends early at large messages, so 100 of 64 MiB are not all read."""
    large = sent(body=[b"x" * (60 * limits.MIB)])
    browse = Browse(large, large, large, large)
    found = await peek(browse, here, "q", 0, 100)
    assert (len(found.rows), found.more) == (3, True)
    assert browse.sent == 2
