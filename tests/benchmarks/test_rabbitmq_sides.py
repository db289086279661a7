"""The counting of confirms at RabbitMQ's side of a comparison."""

from unittest.mock import Mock

import rabbitmq_sides

from tests.optional import needs

needs("pika", "bench")

from pika import frame, spec  # noqa: E402


def test_confirms_come_one_by_one_and_together():
    """A confirm with `multiple` covers all up to its tag; others may come before it."""
    channel = Mock()
    confirms = rabbitmq_sides.Confirms(channel)
    (answer,) = channel.confirm_delivery.call_args.args
    for _ in range(7):
        confirms.expect()
    assert confirms.missing == 7
    answer(frame.Method(1, spec.Basic.Ack(5)))
    assert confirms.missing == 6
    answer(frame.Method(1, spec.Basic.Ack(6, multiple=True)))
    assert confirms.missing == 1
    answer(frame.Method(1, spec.Basic.Ack(7)))
    assert confirms.missing == 0
