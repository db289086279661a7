"""Outcomes, declared and undeclared, and the answers to settlements (C4, C5, C15)."""

import pytest

from ackq.v1 import consuming_pb2
from tests.eventually import eventually
from tests.wire.brokers.dialect import NEGATIVE, Outcome, Refused

TEN = [b"%d" % number for number in range(10)]

# --- C4: outcomes ---


def test_released_does_not_count(bench):
    """C4: releasing a message does not count against the delivery limit."""
    queue, dead = bench.dead_lettering(b"x", delivery_limit=1)
    channel = bench.channel()
    released = 0
    while released < 3 and (deliveries := channel.get(queue)):
        channel.settle(deliveries[0], Outcome.RELEASED)
        released += 1
        eventually("the message", lambda: bench.ready(queue) + bench.ready(dead) == 1)
    bench.expect("releases that a limit of one allows", released, 3)


# --- C5: declared outcomes ---


@pytest.mark.parametrize("outcome", NEGATIVE)
def test_undeclared_outcome(ackq, outcome):
    """C5: a consumer that uses an undeclared outcome has its channel closed."""
    queue, channel = ackq.filled(b"x"), ackq.channel()
    channel.consume(queue, outcomes=tuple(other for other in NEGATIVE if other is not outcome))
    delivery = channel.delivery()
    with pytest.raises(Refused) as refused:
        channel.settle(delivery, outcome)
    assert refused.value.code == "outcome_not_supported"
    assert "Required Settlement Outcome Not Supported" in refused.value.text
    ackq.wait_ready(queue, 1)


def test_declaring_what_the_broker_does_not_have(ackq):
    """C5: declaring an outcome that the broker does not announce is an invalid operation."""
    queue, channel = ackq.queue(), ackq.channel()
    channel.send(subscribe=consuming_pb2.Subscribe(consumer="c", queue=queue, outcomes=[99]))
    refused = channel.log.wait_end()
    assert refused.code == "invalid_operation"


# --- C15: settlements are answered ---


def test_settlements_are_answered(ackq):
    """C15: the answer to a settlement says how many messages it settled."""
    queue, channel = ackq.filled(*TEN), ackq.channel()
    deliveries = channel.get(queue, 10)
    assert channel.settle(deliveries[2]) == 1
    assert channel.settle(deliveries[4], multiple=True) == 4
    assert channel.settle(deliveries[9], Outcome.REJECTED, multiple=True) == 5
