"""The transport window of a channel, by times and tags."""

from ackq import limits
from ackq_broker.service.consuming.transport_window import PendingDelivery, TransportWindow

RETRANSMIT_S = limits.RETRANSMIT_MS / 1000


def sent(found, first_tag):
    """Adds a delivery of one message to a window, and sends it at time 0."""
    delivery = PendingDelivery("c", 0, first_tag, 1, 1, (), no_ack=False)
    found.add(delivery)
    assert found.due_s in (None, RETRANSMIT_S)
    found.sent(delivery, 0.0)
    return delivery


def test_the_wait_doubles_up_to_a_bound():
    """C11: the retransmission wait doubles from 2 s to 60 s, until a transport ack progresses.

    A window that a resuming client made smaller has no room, never a negative one.
    """
    found = TransportWindow(10)
    for tag in (1, 2):
        sent(found, tag)
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
    assert (found.room, found.ack(1, now_s), found.acked_tag) == (9, [], 1)
    found.messages = 0
    assert found.room == 0


def test_nothing_is_due_that_was_not_sent():
    """C11, C12: the retransmission wait begins when the first unacknowledged frame has been sent.

    A stream still writing while its channel ends retransmits nothing.
    """
    found = TransportWindow(10)
    written = sent(found, 1)
    found.disconnect()
    assert (found.due_s, list(found.drain())) == (None, [written])
    found.sent(written, 0.0)
    assert (found.due_s, found.overdue(10 * RETRANSMIT_S)) == (None, None)
