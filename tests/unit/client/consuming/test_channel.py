"""A channel over a scripted broker, with its cuts, threads and forks: C2, C5, C9-C12, C15."""

import gc
import sys
import threading

import pytest

from ackq import errors, limits
from ackq.client import Channel, Outcome
from ackq.client.consuming import stream
from ackq.client.consuming.channel import wait_for
from ackq.client.consuming.state import ChannelState, Lost
from ackq.v1 import consuming_pb2 as pb
from tests.fakes import scripted_channel as fake
from tests.fakes.scripted_broker import Cut
from tests.unit.client.consuming.scripts import KINDS, channel, consuming, react, serve, settles
from tests.unit.client.threads import SOON_S, client_threads, logged, refuse_threads, run_program


@pytest.fixture(params=KINDS)
def kind(request):
    """Each kind of channel: the tests hold for both."""
    return KINDS[request.param]


def test_a_channel_opens_with_its_window_and_label(broker):
    """C11: the open carries window, label and a channel id of 16 random bytes."""
    with channel(broker, window_messages=7, label="till 4") as it:
        it.consume("orders")
    ((opening, *_),) = broker.consuming.streams
    assert len(opening.open.channel_id) == 16
    assert (opening.open.window_messages, opening.open.label) == (7, "till 4")


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


def test_outcomes_that_the_broker_lacks_are_refused(broker):
    """C5: InvalidOperation at open for an unsupported outcome; the channel goes on."""
    broker.consuming.scripts.append(react(open=fake.opened(outcomes=[pb.OUTCOME_ACCEPTED])))
    with channel(broker) as it:
        with pytest.raises(errors.InvalidOperationError, match="rejected"):
            it.consume("orders", outcomes=["rejected"])
        it.consume("orders")
        assert it.outcomes == {Outcome.ACCEPTED}


def test_an_undeclared_outcome_is_refused(broker):
    """C5: refused at the call; the message can still be settled with another outcome."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 1)))
    with channel(broker) as it:
        message = it.consume("orders", mode="client", outcomes="rejected").receive(SOON_S)
        with pytest.raises(errors.OutcomeNotSupportedError, match="did not declare 'failed'"):
            message.fail()
        assert message.reject("no").result(SOON_S) == 1


def test_a_message_of_another_channel_closes_the_channel(broker):
    """C2: a delivery tag is valid only on its own channel."""
    broker.consuming.scripts += [serve(fake.numbered(1, 1)), serve(fake.numbered(1, 1))]
    with channel(broker) as mine, channel(broker) as other:
        consumer = mine.consume("orders", mode="client")
        consumer.receive(SOON_S)
        foreign = other.consume("orders", mode="client").receive(SOON_S)
        with pytest.raises(errors.UnknownDeliveryTagError):
            mine.acknowledge(foreign)
        with pytest.raises(errors.UnknownDeliveryTagError):
            consumer.receive(SOON_S)
        assert foreign.accept().result(SOON_S) == 1
    assert settles(broker.consuming.streams[0]) == []


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


def test_a_cut_within_the_grace_is_not_noticed(broker, kind):
    """C11, C15: same channel id, no duplicates; unanswered settlements keep their numbers."""
    cut = threading.Event()

    def disconnect(_):
        cut.set()
        raise Cut

    first = react(subscribe=fake.numbered(1, 3), settle=disconnect)
    second = serve(fake.numbered(1, 5), resumed=True)
    broker.consuming.scripts += [first, second]
    with channel(broker, kind=kind) as it:
        consumer = it.consume("orders", mode="client")
        message = consumer.receive(SOON_S)
        settlement = message.accept()
        assert cut.wait(SOON_S)
        assert [consumer.receive(SOON_S).body for _ in range(4)] == [b"2", b"3", b"4", b"5"]
        assert settlement.result(SOON_S) == 1
    before, after = broker.consuming.streams
    assert before[0].open.channel_id == after[0].open.channel_id
    assert before[0].open.attempt != after[0].open.attempt
    assert settles(before) == settles(after)
    assert settles(before)[0].number == 1
    assert "subscribe" not in fake.kinds(after)


def test_a_cut_beyond_the_grace_closes_a_channel_that_is_not_renewed(broker, kind):
    """C11, C15: every call raises that the tags are void; settlements get their outcomes."""
    cut = threading.Event()

    def disconnect(_):
        cut.set()
        raise Cut

    first = react(subscribe=fake.numbered(1, 3), settle=disconnect)
    broker.consuming.scripts += [first, serve()]
    with channel(broker, kind=kind, reconnect_timeout_ms=0) as it:
        consumer = it.consume("orders", mode="client")
        messages = [consumer.receive(SOON_S) for _ in range(3)]
        settlement = messages[0].accept()
        assert cut.wait(SOON_S)
        with pytest.raises(
            errors.OutcomeUnknownError, match="If it did not, its messages are delivered again"
        ):
            settlement.result(SOON_S)
        with pytest.raises(errors.ClosedError, match="the tags are void") as gone:
            consumer.receive(SOON_S)
        assert gone.value.fields["cause"] == "the connection was cut"
        assert gone.value.fields["unacked"] == "2"
        with pytest.raises(errors.ClosedError, match="Open a new channel"):
            messages[1].accept()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"reconnect_timeout_ms": 0}, "the broker waits"), ({"reconnect_timeout_ms": 300}, "0.3 s")],
)
def test_a_broker_that_stays_away_closes_the_channel(broker, monkeypatch, options, words):
    """C11, C17: the client retries for the broker's grace, or for its reconnect timeout."""
    monkeypatch.setattr(stream, "_RESUMABLE_S", 0.3)
    broker.consuming.scripts.append(react(subscribe=fake.numbered(1, 1)))
    with channel(broker, **options) as it:
        consumer = it.consume("orders", mode="client")
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


def test_a_failure_that_nobody_saw_is_raised_by_close(broker):
    """An application that makes no other call gets the channel's error from `close`."""
    failed = threading.Event()
    gone = errors.QueueNotFoundError("There is no queue 'orders'.")
    broker.consuming.scripts.append(fake.answering(lambda _: failed.set(), end=gone))
    it = channel(broker)
    it.consume("orders")
    assert failed.wait(SOON_S)
    it._stream._thread.join(SOON_S)
    with pytest.raises(errors.QueueNotFoundError):
        it.close()
    it.close()
    assert client_threads() == []


def test_a_failure_that_comes_while_closing_is_raised(broker):
    """An error of the broker during close is raised by `close`."""

    def script(requests):
        next(requests)
        yield fake.opened()
        for _ in requests:
            pass
        raise errors.QueueNotFoundError("There is no queue 'orders'.")

    broker.consuming.scripts.append(script)
    it = channel(broker)
    it.consume("orders")
    with pytest.raises(errors.QueueNotFoundError):
        it.close()
    assert client_threads() == []


def test_none_gives_what_it_has_after_the_channel_is_gone(broker):
    """C10, NONE: received messages are handed over, as the broker has removed them."""
    broker.consuming.scripts.append(
        fake.answering(fake.numbered(1, 3), end=errors.ClosedError("The channel was closed."))
    )
    with channel(broker, reconnect_timeout_ms=0) as it:
        consumer = it.consume("orders", mode="none")
        it._stream._thread.join(SOON_S)
        assert [consumer.receive(0).body for _ in range(3)] == [b"1", b"2", b"3"]
        with pytest.raises(errors.ClosedError):
            consumer.receive(SOON_S)


def test_a_silent_broker_is_left_for_a_new_stream(broker, monkeypatch):
    """C11, C12: a silent connection counts as cut, and the channel goes on by a new stream."""
    decide = ChannelState.next_action
    losses = [Lost()]

    def lose_once(state, now):
        return losses.pop() if losses and state.opened and state.inboxes else decide(state, now)

    monkeypatch.setattr(ChannelState, "next_action", lose_once)
    broker.consuming.scripts += [serve(), serve(fake.numbered(1, 1), resumed=True)]
    with channel(broker) as it:
        assert it.consume("orders").receive(SOON_S).body == b"1"
    first, second = broker.consuming.streams
    assert first[0].open.channel_id == second[0].open.channel_id


def test_a_malformed_frame_ends_the_channel(broker):
    """A frame that announces more rows than its block has ends the channel."""
    lie = fake.frame(
        fake.block_of(b"a"), delivery=pb.Delivery(consumer="1", runs=fake.runs_of((1, 2)))
    )
    with (
        consuming(broker, lie, mode="auto") as (_, consumer),
        pytest.raises(errors.MalformedBlockError, match="announce 2 rows"),
    ):
        consumer.receive(SOON_S)


def test_a_pull_without_an_answer_is_given_up(broker, kind):
    """C9: messages that arrive for an abandoned pull are requeued."""
    late = threading.Event()

    def settled(request):
        late.set()
        return fake.settled(request)

    subscribed = fake.numbered(1, 1, get_number=1)
    broker.consuming.scripts.append(react(subscribe=subscribed, settle=settled))
    with channel(broker, kind=kind) as it:
        with pytest.raises(errors.BrokerUnavailableError, match="left a pull of queue 'orders'"):
            it.get("orders", timeout_s=0.05)
        it.consume("orders")
        assert late.wait(SOON_S)
    (settle,) = settles(broker.consuming.streams[0])
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
    assert len(settles(broker.consuming.streams[0])) == (1 if runs else 3)


def test_receive_gives_up_in_time(broker, kind):
    """`receive` and `receive_batch` return None when no message comes within the timeout."""
    with channel(broker, kind=kind) as it:
        consumer = it.consume("orders")
        assert consumer.receive(0) is None
        assert consumer.receive(0.05) is None
        assert consumer.receive_batch(timeout_s=0.05) is None


def test_receive_from_many_threads_gives_each_message_once(broker):
    """Concurrent receivers get each message exactly once."""
    broker.consuming.scripts.append(serve(*(fake.numbered(at, at) for at in range(1, 201))))
    got = []

    def work():
        for _ in range(50):
            message = consumer.receive(SOON_S)
            got.append(message.body)
            message.accept()

    with channel(broker) as it:
        consumer = it.consume("orders", mode="client")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(SOON_S)
        it.flush(SOON_S)
    assert sorted(map(int, got)) == list(range(1, 201))


def test_close_wakes_who_waits(broker):
    """Closing wakes a thread in `receive` and one iterating over a consumer."""
    ends = []

    def receive():
        with pytest.raises(errors.ClosedError):
            first.receive()
        ends.append("receive")

    def loop():
        ends.extend(second)
        ends.append("loop")

    it = channel(broker)
    first, second = it.consume("orders"), it.consume("bills")
    threads = [threading.Thread(target=each) for each in (receive, loop)]
    for each in threads:
        each.start()
    it.close()
    for each in threads:
        each.join(SOON_S)
    assert sorted(ends) == ["loop", "receive"]
    with pytest.raises(errors.ClosedError, match="is closed"):
        it.consume("orders")


def test_close_with_a_bound_gives_up(broker, kind):
    """C15: a broker that does not answer delays close by no more than its timeout."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 1), settle=False))
    it = channel(broker, kind=kind)
    settlement = it.consume("orders", mode="client").receive(SOON_S).accept()
    with pytest.raises(errors.BrokerUnavailableError, match=r"unanswered for 0\.1 s"):
        it.close(0.1)
    assert isinstance(settlement.exception(0), errors.OutcomeUnknownError)
    assert client_threads() == []


def test_leaving_by_an_exception_keeps_the_exception(broker, kind, monkeypatch):
    """The exception propagates, and the channel is closed with all its threads ended."""
    monkeypatch.setattr(limits, "HEARTBEAT_SEND_MS", 100)
    broker.consuming.scripts.append(serve(fake.numbered(1, 1), settle=False))

    def leave():
        with channel(broker, kind=kind) as it:
            it.consume("orders", mode="client").receive(SOON_S).accept()
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert client_threads() == []


def test_a_settlements_callback_must_not_wait_for_its_own_thread(broker):
    """Blocking calls in a settlement's callback are refused, as they would wait for themselves."""
    caught = []

    def call_back(_):
        for call in (it.flush, it.close, consumer.receive, lambda: it.get("orders")):
            try:
                call()
            except errors.PreconditionFailedError as error:
                caught.append(error)

    added = threading.Event()
    broker.consuming.scripts.append(serve(fake.numbered(1, 1), asked=added))
    with channel(broker) as it:
        consumer = it.consume("orders", mode="client")
        settlement = consumer.receive(SOON_S).accept()
        settlement.add_done_callback(call_back)
        added.set()
        it.flush(SOON_S)
    assert len(caught) == 4


def test_a_settlements_callback_that_exits_stops_nothing(broker, caplog):
    """C15: the futures of other settlements are resolved all the same."""
    added = threading.Event()
    broker.consuming.scripts.append(serve(fake.numbered(1, 2), asked=added))
    with channel(broker) as it:
        consumer = it.consume("orders", mode="client")
        first = consumer.receive(SOON_S)
        second = consumer.receive(SOON_S)
        first.accept().add_done_callback(lambda _: sys.exit(1))
        added.set()
        it.flush(SOON_S)
        assert second.accept().result(SOON_S) == 1
    assert [each.message for each in logged(caplog) if each.levelname == "ERROR"] == [
        "A callback of a settlement's future raised an exception"
    ]


def test_a_thread_that_cannot_start_leaves_the_channel_as_it_was(broker, monkeypatch):
    """If no thread can start, the call raises, and the next call may succeed."""

    with channel(broker) as it:
        with monkeypatch.context() as patched:
            refuse_threads(patched, "ackq-channel")
            with pytest.raises(RuntimeError, match="can't start new thread"):
                it.consume("orders")
        assert it.consume("orders").receive(0) is None


def test_a_bug_in_the_thread_is_told(broker, monkeypatch):
    """An exception in the channel's thread is raised by every call; no call hangs."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr("ackq.client.consuming.state.ChannelState.on_delivery", lambda *_: 1 / 0)
    with (
        consuming(broker, fake.numbered(1, 1), mode="auto") as (_, consumer),
        pytest.raises(errors.InternalError, match="ZeroDivisionError"),
    ):
        consumer.receive(SOON_S)
    assert client_threads() == []


def test_a_forsaken_channel_leaves_no_thread(broker):
    """A garbage-collected channel ends its stream and threads; its messages are requeued."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 1)))
    it = channel(broker)
    message = it.consume("orders", mode="client").receive(SOON_S)
    del it
    gc.collect()
    for thread in client_threads():
        thread.join(SOON_S)
    assert client_threads() == []
    with pytest.raises(errors.ClosedError):
        message.accept()


def test_a_consumer_keeps_its_channel(broker):
    """A consumer keeps its channel alive without another reference."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 1)))
    consumer = Channel(broker.endpoint).consume("orders", mode="client")
    gc.collect()
    assert consumer.receive(SOON_S).body == b"1"
    consumer.channel.close()


def test_an_unclosed_channel_does_not_hold_up_the_exit(broker):
    """A program that does not close its channel exits all the same, with callbacks too."""
    done = run_program(f"""
        from ackq.client import Channel
        channel = Channel({broker.endpoint!r})
        channel.consume("orders", print)
        consumer = channel.consume("bills")
    """)
    assert done.stderr == ""


def test_a_fork_must_not_use_its_parents_channel(broker):
    """Calls in the forked child raise and never hang; the parent's channel goes on."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 2)))
    done = run_program(f"""
        import os, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from ackq import errors
        from ackq.client import Channel
        channel = Channel({broker.endpoint!r})
        consumer = channel.consume("orders", mode="client")
        message = consumer.receive({SOON_S})
        calls = [
            message.accept, consumer.receive, channel.flush, lambda: channel.consume("x"),
            lambda: channel.get("x"), lambda: channel.acknowledge(message),
            lambda: channel.set_prefetch(1), lambda: consumer.set_prefetch(1),
        ]
        child = os.fork()
        if not child:
            told = 0
            for call in calls:
                try:
                    call()
                except errors.ClosedError as error:
                    told += "fork" in str(error)
            consumer.close()
            channel.close()
            os._exit(told)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), len(calls))
        print(message.accept().result({SOON_S}), consumer.receive({SOON_S}).body)
        channel.close()
    """)
    assert done.stdout == "8 8\n1 b'2'\n"


def test_a_broker_that_opens_the_channel_twice(broker):
    """C11: a second open answer fails the channel with a typed error, without a dead thread."""
    broker.consuming.scripts.append(react(subscribe=fake.opened()))
    with channel(broker) as it:
        consumer = it.consume("orders")
        with pytest.raises(errors.InternalError, match="opened the channel again"):
            consumer.receive(timeout_s=SOON_S)


def test_a_wait_ends_by_itself_to_look_again(monkeypatch):
    """A wait for messages looks again without a notification, and Python then for signals."""
    monkeypatch.setattr(limits, "SIGNAL_WAIT_S", 0.01)
    changed, polled = threading.Condition(), iter([None, None, "a message"])
    with changed:
        assert wait_for(changed, lambda: next(polled), None) == "a message"
