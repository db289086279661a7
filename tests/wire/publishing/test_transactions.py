"""P13: transactions."""

import pytest

from tests.wire.brokers.dialect import Mode, Refused
from tests.wire.brokers.streams import Finished, Return


def test_commit_makes_visible(bench):
    """P13: all publishes of a transaction become visible at its commit, and not before."""
    first, second = bench.queue(), bench.queue()
    publisher = bench.publisher(Mode.TRANSACTION)
    publisher.publish(first, b"a", b"b")
    publisher.publish(second, b"c")
    bench.fill(first, b"meanwhile")
    assert (bench.ready(first), bench.ready(second)) == (1, 0)
    publisher.commit()
    bench.wait_ready(first, 3)
    assert bench.drain(first) == [b"meanwhile", b"a", b"b"]
    assert bench.drain(second) == [b"c"]


def test_rollback(bench):
    """P13: publishes disappear at a rollback, and the next transaction is empty.

    An empty commit is answered.
    """
    queue, publisher = bench.queue(), bench.publisher(Mode.TRANSACTION)
    publisher.publish(queue, b"a")
    publisher.rollback()
    publisher.publish(queue, b"b")
    publisher.commit()
    publisher.commit()
    publisher.rollback()
    assert [type(event) for event in publisher.answers.seen] == [Finished] * 4
    bench.wait_ready(queue, 1)
    assert bench.drain(queue) == [b"b"]


@pytest.mark.parametrize("end", ["cut", "close"])
def test_a_stream_that_ends_commits_nothing(bench, end):
    """P13: uncommitted publishes disappear with their stream."""
    queue, connection = bench.queue(), bench.connect()
    publisher = connection.publisher(Mode.TRANSACTION)
    publisher.publish(queue, b"committed")
    publisher.commit()
    publisher.publish(queue, b"lost")
    getattr(publisher if end == "close" else connection, end)()
    publisher.answers.wait_end()
    bench.fill(queue, b"later")
    assert bench.drain(queue) == [b"committed", b"later"]


def test_transaction_routes_at_its_commit(bench):
    """P13, P7: a transaction no larger than a frame is routed by the bindings at its commit."""
    exchange, queue = bench.exchange("fanout"), bench.queue()
    publisher = bench.publisher(Mode.TRANSACTION)
    publisher.publish("", b"x", exchange=exchange)
    publisher.received()
    bench.broker.bind(exchange, queue)
    publisher.commit()
    found = bench.drain(queue)
    bench.expect("messages for a queue that was bound before the commit", found, [b"x"])


@pytest.mark.parametrize("crash", [False, True], ids=["reconnect", "restart"])
def test_commit_repeated_after_a_reconnect(ackq, crash):
    """P13, P7: a repeated commit is answered from the record, and no message is stored twice.

    Its returns come again, with numbers and reason.
    """
    queue, nowhere, connection = ackq.queue(), ackq.name("nowhere"), ackq.connect()
    publisher = connection.publisher(Mode.TRANSACTION)
    connection.relay.hold("to_client")
    publisher.publish(queue, b"a", mandatory=True)
    publisher.publish(nowhere, b"b", b"c", mandatory=True)
    publisher.publish(nowhere, b"d")
    publisher.publish(queue, b"e")
    transaction = publisher.ask_commit()
    ackq.wait_ready(queue, 2)
    connection.cut()
    ackq.fill(queue, b"behind")  # durable, so the commit before it is on disk
    if crash:
        ackq.broker.crash()
    again = ackq.publisher(Mode.TRANSACTION, identity=publisher.identity, resume=True)
    for times in (1, 2):
        assert again.commit_again(transaction)
        kinds = [type(event) for event in again.answers.seen]
        assert kinds == [Return, Return, Finished] * times
    returned = again.answers.returned.values()
    assert list(returned) == [Return(number, b"", "unroutable") for number in (2, 3)]
    assert ackq.drain(queue) == [b"a", b"e", b"behind"]


def test_commit_of_what_is_gone(ackq):
    """P13: after a reconnect a commit of publishes lost with their stream is refused."""
    queue, connection = ackq.queue(), ackq.connect()
    publisher = connection.publisher(Mode.TRANSACTION)
    publisher.publish(queue, b"a")
    connection.cut()
    again = ackq.publisher(Mode.TRANSACTION, identity=publisher.identity, resume=True)
    with pytest.raises(Refused) as refused:
        again.commit_again(publisher.transaction())
    assert refused.value.code == "transaction_rolled_back"
    again.publish(queue, b"b")
    again.commit()
    assert ackq.drain(queue) == [b"b"]


def test_commit_is_all_or_nothing(ackq):
    """P13, P8: a message that the broker cannot take refuses the whole commit, with its reason."""
    full, room = ackq.filled(b"x", max_length=1), ackq.queue()
    publisher = ackq.publisher(Mode.TRANSACTION)
    publisher.publish(room, b"a")
    publisher.publish(full, b"b")
    with pytest.raises(Refused) as refused:
        publisher.commit()
    assert (refused.value.code, refused.value.fields["queue"]) == ("queue_full", full)
    assert (ackq.ready(room), ackq.ready(full)) == (0, 1)
    publisher.publish(room, b"c")
    publisher.commit()
    assert ackq.drain(room) == [b"c"]
