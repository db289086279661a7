"""Renewal of a channel that its broker has lost, over a scripted broker: C9-C11, C15, C17."""

import queue
import threading
from contextlib import contextmanager

import pytest

from ackq import errors
from ackq.client import Channel
from ackq.v1 import consuming_pb2 as pb
from tests.fakes import scripted_channel as fake
from tests.fakes.scripted_broker import Cut
from tests.unit.client.consuming.scripts import KINDS, channel, cut, react, serve, settles
from tests.unit.client.threads import SOON_S, client_threads, logged


class Heard(queue.SimpleQueue):
    """Keeps the reports of `on_reconnect`, and the thread that made the last one."""

    def __call__(self, reconnected):
        self.thread = threading.current_thread().name
        self.put(reconnected)

    def wait(self):
        return self.get(timeout=SOON_S)


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture(params=KINDS)
def kind(request):
    """Each kind of channel: the tests hold for both."""
    return KINDS[request.param]


def cut_at_settle(frame, instance=b""):
    """A script that sends a frame to a consumer, and cuts the stream at a settlement."""
    return react(open=fake.opened(instance=instance), subscribe=frame, settle=cut)


@contextmanager
def renewing(broker, first, second, **options):
    """Opens a channel that loses its stream once, and gets a new channel at the broker."""
    broker.consuming.scripts += [first, second]
    with channel(broker, **options) as it:
        yield it
    assert client_threads() == []


def test_a_consumer_goes_on_with_tags_behind_those_before(broker, heard, kind, caplog):
    """C17: subscribes again with its prefetch; the broker's new tags from 1 are mapped."""
    first, second = cut_at_settle(fake.numbered(1, 3)), serve(fake.numbered(1, 3))
    with renewing(broker, first, second, on_reconnect=heard, kind=kind) as it:
        consumer = it.consume("orders", mode="client", prefetch=7)
        consumer.set_prefetch(9)
        it.set_prefetch(20)
        in_flight = consumer.receive(SOON_S).accept()
        unknown = r"renewed before its answer \(the connection was cut\)\. If it did not, its"
        with pytest.raises(errors.OutcomeUnknownError, match=unknown):
            in_flight.result(SOON_S)
        told = heard.wait()
        assert (told.redelivered, told.unknown, told.cause) == (3, 1, "the connection was cut")
        assert (heard.thread == "loop") == (kind is not Channel)
        new = [consumer.receive(SOON_S) for _ in range(3)]
        assert [(each.delivery_tag, each.body) for each in new] == [(4, b"1"), (5, b"2"), (6, b"3")]
        assert new[2].accept().result(SOON_S) == 1
        assert it.acknowledge(new[1]).result(SOON_S) == 2
    after = broker.consuming.streams[1]
    assert len(after[0].open.channel_id) == 16
    assert after[1].prefetch == pb.Prefetch(messages=20)
    subscribe = after[2].subscribe
    assert (subscribe.consumer, subscribe.prefetch, subscribe.renewed) == ("1", 9, False)
    assert [(each.delivery_tag, each.multiple) for each in settles(after)] == [
        (3, False),
        (2, True),
    ]
    assert "was renewed after" in caplog.text


def test_a_tag_of_before_settles_nothing_and_closes_nothing(broker, heard, kind):
    """C17: stale messages, batches and `acknowledge` fail their futures, and `flush` once."""
    first, second = cut_at_settle(fake.numbered(1, 5)), serve(fake.numbered(1, 5), settle_runs=True)
    with renewing(broker, first, second, on_reconnect=heard, kind=kind) as it:
        consumer = it.consume("orders", mode="client", outcomes=["failed"])
        old = consumer.receive(SOON_S)
        batch = consumer.receive_batch(3, SOON_S)
        old.fail("busy")
        heard.wait()
        with pytest.raises(errors.OutcomeUnknownError):
            it.flush(SOON_S)
        it.flush(SOON_S)
        futures = [old.accept(), old.fail(), it.acknowledge(old), consumer.settle(batch)]
        for each in futures:
            with pytest.raises(errors.StaleDeliveryTagError, match="delivered again"):
                each.result(0)
        with pytest.raises(errors.StaleDeliveryTagError):
            it.flush(SOON_S)
        new = consumer.receive_batch(9, SOON_S)
        assert new.column("delivery_tag").to_pylist() == [6, 7, 8, 9, 10]
        assert consumer.settle(new.slice(1, 2)).result(SOON_S) == 2
        assert it.unacked == 3
    (settle,) = settles(broker.consuming.streams[1])
    assert (list(settle.first_tag), list(settle.rows)) == ([2], [2])


def test_what_waited_to_be_sent_took_no_effect(broker, heard):
    """C17: a settlement that was never sent fails as stale, with a known outcome."""
    away = threading.Event()
    script = cut_at_settle(fake.numbered(1, 2))

    def late(requests):
        assert away.wait(SOON_S)
        yield from serve(fake.numbered(1, 2))(requests)

    with renewing(broker, script, late, on_reconnect=heard) as it:
        consumer = it.consume("orders", mode="client")
        first, second = (consumer.receive(SOON_S) for _ in range(2))
        first.accept()
        with it._stream.lock:
            while it._state.opened:
                it._stream._changed.wait(SOON_S)
        unsent = second.accept()
        away.set()
        with pytest.raises(errors.StaleDeliveryTagError, match="under other tags"):
            unsent.result(SOON_S)
        assert consumer.receive(SOON_S).delivery_tag == 3


@pytest.mark.parametrize("mode", ["auto", "dups_ok", "none"])
def test_receive_goes_on(broker, heard, kind, mode):
    """C10, C17: unread messages are delivered again; without acks they are kept."""
    told = threading.Event()

    def first(requests):
        for frame in cut_at_settle(fake.numbered(1, 3))(requests):
            yield frame
            if frame.header.HasField("delivery") and mode != "auto":
                assert told.wait(SOON_S)
                raise Cut

    with renewing(broker, first, serve(fake.numbered(11, 12)), on_reconnect=heard, kind=kind) as it:
        consumer = it.consume("orders", mode=mode)
        got = [consumer.receive(SOON_S).body]
        told.set()
        heard.wait()
        more = 4 if mode == "none" else 2
        got += [consumer.receive(SOON_S).body for _ in range(more)]
    kept = [b"2", b"3"] if mode == "none" else []
    assert got == [b"1", *kept, b"11", b"12"]


def test_pre_says_that_it_does_not_know(broker, heard, kind):
    """C10, C17: `receive` raises for a message that may be lost, then gives the next one."""
    first, second = cut_at_settle(fake.numbered(1, 2)), serve(fake.numbered(2, 2))
    with renewing(broker, first, second, on_reconnect=heard, kind=kind) as it:
        consumer = it.consume("orders", mode="pre")
        with pytest.raises(errors.OutcomeUnknownError):
            consumer.receive(SOON_S)
        assert consumer.receive(SOON_S).body == b"2"


@pytest.mark.parametrize("mode", ["auto", "client", "pre"])
def test_callbacks_go_on(broker, heard, kind, caplog, mode):
    """C10, C17: the consumer's thread survives; settling under a void tag has no effect."""
    seen, done = [], threading.Event()

    def call_back(message):
        seen.append(message.body)
        if message.body == b"12":
            done.set()
        if mode == "client":
            message.accept()

    first, second = cut_at_settle(fake.numbered(1, 2)), serve(fake.numbered(11, 12))
    with renewing(broker, first, second, on_reconnect=heard, kind=kind) as it:
        it.consume("orders", call_back, mode=mode)
        assert done.wait(SOON_S)
    assert seen[-2:] == [b"11", b"12"]
    assert (b"1" in seen) == (mode != "pre")
    lines = [each.getMessage() for each in logged(caplog)]
    assert any("not given to the callback" in each for each in lines) == (mode == "pre")


def test_another_channel_is_known_by_its_instance(broker, heard):
    """C17: the broker says resumed, but another instance shows that the channel is new."""
    first = cut_at_settle(fake.numbered(1, 2), instance=b"a" * 16)
    second = serve(fake.numbered(1, 2), resumed=True, instance=b"b" * 16)
    with renewing(broker, first, second, on_reconnect=heard) as it:
        consumer = it.consume("orders", mode="client")
        consumer.receive(SOON_S).accept()
        assert heard.wait().redelivered == 2
        assert consumer.receive(SOON_S).delivery_tag == 3
    assert broker.consuming.streams[1][1].subscribe.renewed


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_pull_is_made_again(broker, heard, kind, no_ack):
    """C9, C17: a cut pull is repeated whole; without acks only for the missing messages."""
    asked = []

    def get(request):
        asked.append(request.get.messages)
        return fake.numbered(1, request.get.messages, get_number=1)

    pulled = fake.numbered(1, 2, get_number=1)
    first = fake.answering(pulled, end=Cut)
    with renewing(broker, first, react(get=get), on_reconnect=heard, kind=kind) as it:
        messages = it.get("orders", 3, no_ack=no_ack)
    assert asked == [1 if no_ack else 3]
    assert [each.body for each in messages] == [b"1", b"2", b"1" if no_ack else b"3"]


def test_a_channel_that_is_closing_takes_nothing_new(broker, heard):
    """C17: a closing channel resolves its last settlements and does not subscribe again."""
    first, second = cut_at_settle(fake.numbered(1, 1)), serve(fake.numbered(1, 1))
    broker.consuming.scripts += [first, second]
    it = channel(broker, on_reconnect=heard)
    consumer = it.consume("orders", mode="client")
    message = consumer.receive(SOON_S)
    with it._stream.lock:
        settlement = message.accept()
        it._stream.begin_close()
    it._stream.finish()
    assert isinstance(settlement.exception(SOON_S), errors.OutcomeUnknownError)
    it._stream.end()
    assert "subscribe" not in fake.kinds(broker.consuming.streams[1])
    assert client_threads() == []
