"""The transport window of a channel, by times and tags."""

import pytest

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq_broker.service.consuming.transport_window import PendingDelivery, TransportWindow

RETRANSMIT_S = limits.RETRANSMIT_MS / 1000


def delivery(first_tag, messages=1):
    return PendingDelivery("c", 0, first_tag, messages, messages, (), no_ack=False)


def window(*deliveries, messages=10):
    """A window with deliveries that were sent at time 0."""
    found = TransportWindow(messages)
    for each in deliveries:
        found.add(each)
        found.sent(each, 0.0)
    return found


def test_room_is_what_has_its_ack():
    """C11: deliveries take room; a cumulative ack frees it, also in the middle of a delivery.

    An older ack has no effect, one of an undelivered tag is an error. A window that a resuming
    client made smaller has no room, never a negative one.
    """
    found = window(delivery(1, 4), delivery(5, 4))
    assert found.room == 2
    assert found.ack(3, 1.0) == []
    assert found.room == 5
    assert [each.first_tag for each in found.ack(8, 1.0)] == [1, 5]
    assert (found.room, found.deliveries) == (10, ())
    assert found.ack(2, 1.0) == []
    assert found.acked_tag == 8
    with pytest.raises(InvalidArgumentError):
        found.ack(9, 1.0)
    smaller = window(delivery(1, 8))
    smaller.messages = 5
    assert smaller.room == 0


def test_the_wait_doubles_up_to_a_bound():
    """C11: the retransmission wait doubles from 2 s to 60 s, until a transport ack progresses."""
    found = window(delivery(1), delivery(2))
    waits, now_s = [], 0.0
    for _ in range(8):
        waits.append(found.due_s - now_s)
        now_s = found.due_s
        assert found.overdue(now_s - 0.001) is None
        assert found.overdue(now_s).first_tag == 1
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]
    found.ack(1, now_s)
    assert found.due_s == now_s + RETRANSMIT_S
    assert found.overdue(found.due_s).first_tag == 2


def test_nothing_is_due_that_was_not_sent():
    """C11, C12: the retransmission wait begins when the first unacknowledged frame has been sent.

    A stream still writing while its channel ends retransmits nothing.
    """
    found = TransportWindow(10)
    assert found.due_s is None
    found.add(delivery(1))
    assert found.due_s is None
    found.sent(delivery(1), 5.0)
    assert found.due_s == 5.0 + RETRANSMIT_S
    found.disconnect()
    assert found.due_s is None
    (written,) = found.drain()
    found.sent(written, 0.0)
    assert (found.due_s, found.overdue(10 * RETRANSMIT_S)) == (None, None)
