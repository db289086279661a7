"""Send times of a heartbeat stream, without a broker."""

from itertools import count

from ackq import limits
from ackq.client.connection.duplex import Send, Wait
from ackq.client.connection.heartbeats import Heartbeats

INTERVAL_S = limits.HEARTBEAT_SEND_MS / 1000


def test_a_heartbeat_at_once_and_then_in_intervals():
    """S3: due at once on each stream, then once per interval; made when it is sent."""
    beats = Heartbeats(count(1).__next__)
    assert beats.next_action(10.0) == Send(1)
    assert beats.next_action(10.0) == Wait(10.0 + INTERVAL_S)
    assert beats.next_action(10.0 + INTERVAL_S) == Send(2)
    beats.on_disconnect()
    assert beats.next_action(10.0 + INTERVAL_S) == Send(3)
