"""A channel over a scripted broker, with its cuts, threads and forks: C2, C5, C9-C12, C15."""

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ackq import errors, limits
from ackq.client import Channel, Outcome
from ackq.client.consuming import stream
from ackq.client.consuming.channel import wait_for
from ackq.client.consuming.receiver import PendingPull
from ackq.v1 import consuming_pb2 as pb
from tests.eventually import eventually
from tests.fakes import scripted_channel as fake
from tests.unit.client.consuming import scripts
from tests.unit.client.consuming.scripts import channel, consuming, react, serve
from tests.unit.client.threads import SOON_S, client_threads, logged, no_threads_are_left, refusals


@pytest.fixture(params=scripts.KINDS)
def kind(request):
    """Each kind of channel: the tests hold for both."""
    return scripts.KINDS[request.param]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queue": ""}, "queue's name has 1 to 255"),
        ({"queue": "q" * 256}, "queue's name has 1 to 255"),
        ({"queue": b"orders"}, "'queue' is a bytes"),
        ({"mode": "later"}, "'mode' is 'later'; it must be one of auto, client"),
        ({"outcomes": ["lost"]}, "'outcome' is 'lost'"),
        ({"prefetch": -1}, "'prefetch' is -1"),
        ({"prefetch": True}, "'prefetch' is True"),
        ({"columns": ["bodi"]}, "no message column 'bodi'"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_sent(broker, arguments, words):
    with channel(broker) as it:
        with pytest.raises(errors.InvalidArgumentError, match=words):
            it.consume(**({"queue": "orders"} | arguments))
        assert broker.consuming.streams == []


def test_outcomes_that_the_broker_or_the_consumer_lacks_are_refused(broker):
    """C5: refused at the call; the channel goes on, and the message has another outcome."""
    some = fake.opened(outcomes=[pb.OUTCOME_ACCEPTED, pb.OUTCOME_REJECTED])
    script = react(open=some, subscribe=fake.numbered(1, 1), settle=fake.settled)
    broker.consuming.scripts.append(script)
    with channel(broker) as it:
        with pytest.raises(errors.InvalidOperationError, match="failed"):
            it.consume("orders", outcomes=["failed"])
        assert it.outcomes == {Outcome.ACCEPTED, Outcome.REJECTED}
        message = it.consume("orders", mode="client", outcomes="rejected").receive(SOON_S)
        with pytest.raises(errors.OutcomeNotSupportedError, match="did not declare 'failed'"):
            message.fail()
        assert message.reject("no").result(SOON_S) == 1


def test_a_message_of_another_channel_closes_the_channel(broker):
    """C2: a delivery tag is valid only on its own channel."""
    broker.consuming.scripts += [serve(fake.numbered(1, 1))] * 2
    with channel(broker) as mine, channel(broker) as other:
        consumer = mine.consume("orders", mode="client")
        foreign = other.consume("orders", mode="client").receive(SOON_S)
        for call in (lambda: mine.acknowledge(foreign), consumer.receive):
            with pytest.raises(errors.UnknownDeliveryTagError):
                call()
        assert foreign.accept().result(SOON_S) == 1
    assert scripts.settles(broker.consuming.streams[0]) == []


@pytest.mark.parametrize("mode", ["auto", "pre", "dups_ok", "none"])
def test_other_modes_refuse_to_be_settled_by_hand(broker, mode):
    """C10: settling by hand in another mode raises, and the channel goes on."""
    with consuming(broker, fake.numbered(1, 2), mode=mode) as (it, consumer):
        message = consumer.receive(SOON_S)
        with pytest.raises(errors.PreconditionFailedError, match=mode.upper()):
            message.accept()
        with pytest.raises(errors.PreconditionFailedError, match=mode.upper()):
            it.acknowledge(message)
        assert consumer.receive(SOON_S).body == b"2"


def test_a_cut_beyond_the_grace_closes_a_channel_that_is_not_renewed(broker, kind):
    """C11, C15: every call raises that the tags are void; settlements get their outcomes."""
    broker.consuming.scripts += [react(subscribe=fake.numbered(1, 3), settle=scripts.cut), serve()]
    with channel(broker, kind=kind, reconnect_timeout_ms=0) as it:
        consumer = it.consume("orders", mode="client")
        messages = [consumer.receive(SOON_S) for _ in range(3)]
        unknown = "If it did not, its messages are delivered again"
        with pytest.raises(errors.OutcomeUnknownError, match=unknown):
            messages[0].accept().result(SOON_S)
        with pytest.raises(errors.ClosedError, match="the tags are void") as gone:
            consumer.receive(SOON_S)
        assert gone.value.fields["cause"] == "the connection was cut"
        assert gone.value.fields["unacked"] == "2"
        with pytest.raises(errors.ClosedError, match="Open a new channel"):
            messages[1].accept()


@pytest.mark.parametrize(("timeout_ms", "words"), [(0, "the broker waits"), (300, "0.3 s")])
def test_a_broker_that_stays_away_closes_the_channel(broker, monkeypatch, timeout_ms, words):
    """C11, C17: the client retries for the broker's grace, or for its reconnect timeout."""
    monkeypatch.setattr(stream, "_RESUMABLE_S", 0.3)
    with consuming(broker, fake.numbered(1, 1), reconnect_timeout_ms=timeout_ms) as (_, consumer):
        message = consumer.receive(SOON_S)
        broker.close()
        with pytest.raises(errors.ClosedError, match=f"{words} .*the tags are void"):
            consumer.receive(SOON_S)
        with pytest.raises(errors.ClosedError):
            message.accept()


def test_no_broker_at_all_is_told(broker):
    """The error names the endpoint after the retry bound."""
    broker.close()
    with (
        channel(broker, retry_total_ms=100) as it,
        pytest.raises(errors.BrokerUnavailableError, match=broker.endpoint),
    ):
        it.consume("orders")


def test_what_the_broker_ends_a_channel_with_is_raised(broker, kind):
    """C2, C15: the broker's error is raised by every call and by unanswered settlements."""

    def refuse(_):
        raise errors.UnknownDeliveryTagError("unknown delivery tag 1", delivery_tag=1)

    broker.consuming.scripts.append(react(subscribe=fake.numbered(1, 2), settle=refuse))
    with channel(broker, kind=kind) as it:
        consumer = it.consume("orders", mode="client")
        settlement = consumer.receive(SOON_S).accept()
        with pytest.raises(errors.UnknownDeliveryTagError):
            settlement.result(SOON_S)
        with pytest.raises(errors.UnknownDeliveryTagError):
            consumer.receive(SOON_S)


@pytest.mark.parametrize("callback", [None, print])
def test_a_failure_that_nobody_saw_is_raised_by_close(broker, callback):
    """An error that no call raised is raised by `close`, also if a callback's thread met it."""
    gone = errors.QueueNotFoundError("There is no queue 'orders'.")
    broker.consuming.scripts.append(fake.answering(end=gone))
    it = channel(broker)
    it.consume("orders", callback)
    with pytest.raises(errors.QueueNotFoundError):
        it.close()
    it.close()
    assert client_threads() == []


def test_a_pull_without_an_answer_is_given_up(broker, kind):
    """C9: messages that arrive for an abandoned pull are requeued."""
    subscribed = fake.numbered(1, 1, get_number=1)
    broker.consuming.scripts.append(react(subscribe=subscribed, settle=fake.settled))
    with channel(broker, kind=kind) as it:
        with pytest.raises(errors.BrokerUnavailableError, match="left a pull of queue 'orders'"):
            it.get("orders", timeout_s=0.05)
        it.consume("orders")
        requests = broker.consuming.streams[0]
        (settle,) = eventually("a settlement", lambda: scripts.settles(requests))
    assert settle.outcome == pb.OUTCOME_RELEASED


def test_an_interrupted_pull_is_given_up(broker, monkeypatch):
    """C9: Ctrl-C in `get` leaves no messages with a pull that nobody waits for."""
    pulled = fake.numbered(1, 1, get_number=1)
    broker.consuming.scripts.append(react(get=pulled, settle=fake.settled))

    def interrupted(pull):
        if pull.inbox.rows:
            raise KeyboardInterrupt

    with channel(broker) as it:
        with monkeypatch.context() as patched:
            patched.setattr(PendingPull, "poll", interrupted)
            with pytest.raises(KeyboardInterrupt):
                it.get("orders")
        requests = broker.consuming.streams[0]
        (settle,) = eventually("a settlement", lambda: scripts.settles(requests))
    assert settle.outcome == pb.OUTCOME_RELEASED


@pytest.mark.parametrize("runs", [False, True])
def test_a_batch_is_settled_by_its_tags(broker, kind, runs):
    """C16: a batch is settled whole or in part, in one settlement if the broker takes runs."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 6), settle_runs=runs))
    with channel(broker, kind=kind) as it:
        consumer = it.consume("orders", mode="client", columns=["delivery_tag", "body"])
        batch = consumer.receive_batch(timeout_s=SOON_S)
        assert batch.schema.names == ["delivery_tag", "body"]
        assert consumer.settle(batch.take([1, 3, 4])).result(SOON_S) == 3
        assert consumer.settle(batch.slice(0, 0)).result(SOON_S) == 0
        with pytest.raises(errors.SchemaError, match="delivery_tag"):
            consumer.settle(batch.select(["body"]))
    assert len(scripts.settles(broker.consuming.streams[0])) == (1 if runs else 3)


def test_receive_gives_up_in_time(broker, kind):
    """`receive` and `receive_batch` return None when no message comes within the timeout."""
    with channel(broker, kind=kind) as it:
        consumer = it.consume("orders")
        assert consumer.receive(0) is None
        assert consumer.receive(0.05) is None
        assert consumer.receive_batch(timeout_s=0.05) is None


def test_receive_from_many_threads_gives_each_message_once(broker):
    """Concurrent receivers get each message exactly once."""
    frames = [fake.numbered(at, at) for at in range(1, 201)]

    def receive(_):
        message = consumer.receive(SOON_S)
        message.accept()
        return int(message.body)

    with consuming(broker, *frames) as (it, consumer), ThreadPoolExecutor(4) as pool:
        got = list(pool.map(receive, range(200)))
        it.flush(SOON_S)
    assert sorted(got) == list(range(1, 201))


def test_close_wakes_who_waits(broker):
    """Closing wakes a thread in `receive` and one iterating over a consumer."""
    it = channel(broker)
    first, second = it.consume("orders"), it.consume("bills")
    with ThreadPoolExecutor(2) as pool:
        receiving, iterating = pool.submit(first.receive), pool.submit(list, second)
        it.close()
    assert isinstance(receiving.exception(0), errors.ClosedError)
    assert iterating.result(0) == []
    with pytest.raises(errors.ClosedError, match="is closed"):
        it.consume("orders")


def test_a_settlements_callback_must_not_wait_for_its_own_thread(broker, caplog):
    """C15: blocking calls in a settlement's callback are refused; `sys.exit()` stops nothing."""
    caught, added = [], threading.Event()
    broker.consuming.scripts.append(serve(fake.numbered(1, 2), asked=[added]))
    with channel(broker) as it:
        consumer = it.consume("orders", mode="client")
        first, second = (consumer.receive(SOON_S) for _ in range(2))
        calls = (it.flush, it.close, consumer.receive, lambda: it.get("orders"))
        settlement = first.accept()
        settlement.add_done_callback(lambda _: caught.extend(refusals(*calls)))
        settlement.add_done_callback(lambda _: sys.exit(1))
        added.set()
        it.flush(SOON_S)
        assert second.accept().result(SOON_S) == 1
    assert len(caught) == 4
    assert [each.levelname for each in logged(caplog)] == ["ERROR"]


def test_flush_waits_for_the_settlements_so_far(broker, kind):
    """C15: `flush` does not wait for a settlement that is made while it waits."""
    early, late = threading.Event(), threading.Event()
    broker.consuming.scripts.append(serve(fake.numbered(1, 2), asked=[early, late]))
    with channel(broker, kind=kind) as it, ThreadPoolExecutor(1) as pool:
        consumer = it.consume("orders", mode="client")
        first, second = (consumer.receive(SOON_S) for _ in range(2))
        first.accept()
        requests = broker.consuming.streams[0]
        eventually("the first settlement", lambda: scripts.settles(requests))
        stream = (it if kind is Channel else it.it)._stream
        flushed = pool.submit(it.flush, SOON_S)
        eventually("flush waits", lambda: stream.wakers)
        later = second.accept()
        early.set()
        flushed.result()
        assert not later.done()
        late.set()


def test_a_consumer_keeps_its_channel(broker):
    """C12: a consumer keeps its channel alive; without both, the tags are void."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 1)))
    consumer = Channel(broker.endpoint).consume("orders", mode="client")
    gc.collect()
    message = consumer.receive(SOON_S)
    del consumer
    gc.collect()
    no_threads_are_left()
    with pytest.raises(errors.ClosedError):
        message.accept()


def test_a_broker_that_opens_the_channel_twice(broker):
    """C11: a second open answer fails the channel with a typed error, without a dead thread."""
    broker.consuming.scripts.append(react(subscribe=fake.opened()))
    with (
        channel(broker) as it,
        pytest.raises(errors.InternalError, match="opened the channel again"),
    ):
        it.consume("orders").receive(SOON_S)


def test_a_wait_ends_by_itself_to_look_again(monkeypatch):
    """A wait for messages looks again without a notification, and Python then for signals."""
    monkeypatch.setattr(limits, "SIGNAL_WAIT_S", 0.01)
    changed, polled = threading.Condition(), iter([None, None, "a message"])
    with changed:
        assert wait_for(changed, lambda: next(polled), None) == "a message"
