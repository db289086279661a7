"""Link deliveries as decoded for the core: L2, L4, L7, L13, L15; invalid ones are in tests/wire."""

import pytest

from ackq.errors import MessageTooLargeError
from ackq.v1 import links_pb2 as pb
from ackq.wire import frame
from ackq_broker.service.links import deliveries
from tests.fakes.blocks import encoded

NOW_US = 1_700_000_000_000_000


def decode(rows=2, data=None, **changes):
    fields = {
        "subscription": 3,
        "first_number": 5,
        "rows": rows,
        "lowest_unanswered": 4,
        "keys": bytes(range(16 * rows)),
        "checks": bytes(range(8 * rows)),
        "proven": 2,
        "proven_number": 3,
    }
    data = data or encoded(body=[b"a", b"bc"][:rows])
    sent = pb.LinkDeliveries(**(fields | changes))
    return deliveries.decode(frame.Frame(pb.LinkHeader(deliveries=sent), data), NOW_US)


def test_flags_are_bits():
    """L7, L15: delivery flags are bits, the lowest for the first row."""
    found = decode(content=b"\x01", redelivered=b"\x02", at_once=b"\x03")
    assert (set(found.content), set(found.redelivered), set(found.at_once)) == ({0}, {1}, {0, 1})


def test_a_row_that_is_refused_refuses_all():
    """L8: a refused row refuses the whole frame, as a link stores in order."""
    with pytest.raises(MessageTooLargeError, match="headers"):
        decode(rows=1, data=encoded(body=[b"a"], headers=[[("k", "v" * 2_000_000)]]))
