"""Publishers of a scripted broker, on threads and on a loop: input, answers, end. P2-P14."""

import gc
import math
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import partial

import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import Confirmation, Publisher, TransactionalPublisher
from ackq.v1 import publishing_pb2
from ackq.wire import block
from tests.fakes import scripted_broker as fake
from tests.unit.client.publishing import scripts
from tests.unit.client.publishing.scripts import KINDS, LINGER_MS
from tests.unit.client.threads import SOON_S, client_threads, no_threads_are_left, refusals

FAR_WEST = timezone(timedelta(hours=-14))


@pytest.fixture(params=KINDS)
def publisher(request):
    """Makes publishers of each kind: the tests hold for both."""
    return partial(scripts.publisher, kind=KINDS[request.param])


def failures(futures):
    """The type of each future's error, None for a confirm."""
    return [each.exception(SOON_S) and type(each.exception(0)) for each in futures]


def test_answers_come_in_any_order_and_each_message_gets_one(broker, publisher):
    """P8, P9: a nack fails its messages alone; future and, once, `flush` raise the reason."""
    full = errors.QueueFullError("The queue 'orders' is full.", queue="orders")
    answers = (fake.nack(2, 3, full), fake.confirm(6, first=6), fake.confirm(4), fake.confirm(4))
    broker.publishing.scripts.append(fake.answering(*answers, fake.confirm(7)))
    order = []
    with publisher(broker, linger_ms=LINGER_MS) as out:
        futures = [out.publish(f"m{number}") for number in range(1, 8)]
        for each in futures:
            each.add_done_callback(lambda done: order.append(done.exception() or done.result()))
        with pytest.raises(errors.QueueFullError, match="full") as failure:
            out.flush(SOON_S)
        assert failure.value.fields == {"queue": "orders"}
        out.flush(SOON_S)
        assert out.unconfirmed == 0
    nacked = [futures[1].exception(), futures[2].exception()]
    assert order == [*nacked, *[Confirmation(number) for number in (6, 1, 4, 5, 7)]]
    assert {type(each) for each in nacked} == {errors.QueueFullError}
    # A shared error that is raised again and again would grow one traceback.
    assert nacked[0] is not nacked[1]


def test_a_publisher_that_never_probes(broker):
    """P10: an infinite timeout is longer than a thread can wait, and ends no stream."""
    with Publisher(broker.endpoint, publish_ack_timeout_ms=math.inf) as out:
        for number in (1, 2):
            assert out.publish(b"a", queue="q").result(SOON_S) == Confirmation(number)
    assert len(broker.publishing.streams) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda each: fake.returned(1, 2, block=each.block), "returned 2 .* with 3 messages"),
        (fake.confirm(9), "answered publish number 9"),
    ],
    ids=["a return without its messages", "a confirm of an unsent number"],
)
def test_an_answer_that_no_broker_gives_ends_the_publisher(broker, publisher, answer, said):
    """P3, P7, P8: all unanswered publishes fail; no thread dies."""
    broker.publishing.scripts.append(fake.answering(answer))
    out = publisher(broker, linger_ms=LINGER_MS, on_return=lambda _: None)
    futures = [out.publish(f"m{i}") for i in range(3)]
    with pytest.raises(errors.OutcomeUnknownError, match=said):
        out.flush(SOON_S)
    assert failures(futures) == [errors.OutcomeUnknownError] * 3
    out.close()


@pytest.mark.parametrize("told", [None, lambda _: None], ids=["nobody listens", "told"])
def test_small_batches_of_a_frame_are_answered_one_by_one(broker, told):
    """P3, P7, P8: a batch fails by its first refused row, or by a returned one that nobody hears.

    It has its failure once all its rows are answered; no other batch of the frame fails.
    """
    nacked = fake.nack(4, 5, errors.QueueFullError("full"))
    answers = (fake.second_returned, nacked, fake.confirm(8))
    broker.publishing.scripts.append(fake.answering(*answers))
    with scripts.publisher(broker, linger_ms=LINGER_MS, on_return=told) as out:
        futures = [out.publish_batch(pa.record_batch({"body": ["a", "b"]})) for _ in range(4)]
        with pytest.raises(errors.QueueFullError):
            out.flush(SOON_S)
    lost = None if told else errors.UnroutableError
    assert failures(futures) == [lost, errors.QueueFullError, errors.QueueFullError, None]
    assert futures[3].result(0) == 2


def test_a_message_that_was_returned_and_then_placed_is_confirmed(broker, publisher):
    """P7, P10: a cut between return and confirm, and a queue is bound meanwhile."""
    broker.publishing.scripts.append(fake.answering(fake.returned(1), end=fake.Cut))
    broker.publishing.scripts.append(fake.answering(fake.confirm(1)))
    with publisher(broker) as out:
        assert out.publish("m").result(SOON_S) == Confirmation(1)
    assert len(broker.publishing.streams) == 2


def test_publisher_that_was_never_opened_does_not_resume(broker, publisher):
    """P10: an open that was never answered is repeated without `resume`."""
    broker.publishing.scripts.append(fake.refusing(fake.Cut))
    with publisher(broker) as out:
        out.publish(b"a")
    assert [each[0].header.open.resume for each in broker.publishing.streams] == [False, False]
    assert fake.data_frames(broker.publishing.streams[0]) == []


def test_late_answer_is_probed_and_only_what_is_missing_goes_again(broker, publisher):
    """P10: after publish_ack_timeout a probe asks; only unseen numbers are sent again."""

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        probe = next(requests).header.probe
        assert (probe.first_number, probe.last_number) == (1, 4)
        yield fake.answer(probed=publishing_pb2.PublishProbed(missing_first=[2], missing_last=[3]))
        yield fake.confirm(1)
        # On a busy machine another probe may come before.
        again = next(each for each in requests if each.header.HasField("data"))
        assert (again.header.data.first_number, fake.bodies(again)) == (2, [b"m1", b"m2"])
        yield fake.confirm(4)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with publisher(broker, linger_ms=LINGER_MS, publish_ack_timeout_ms=50) as out:
        futures = [out.publish(f"m{i}") for i in range(4)]
        out.flush(SOON_S)
    assert [each.result().number for each in futures] == [1, 2, 3, 4]
    assert len(broker.publishing.streams) == 1


def test_a_reconnect_within_the_limits_of_its_user_is_repeated(broker, publisher):
    """P10, A5: the broker still counts the stream that was cut; the first opening is refused."""
    full = fake.refusing(errors.LimitError("You have 1 of 1 connections."))
    broker.publishing.scripts.extend([fake.answering(end=fake.Cut), full, full])
    with publisher(broker) as out:
        assert out.publish("m").result(SOON_S) == Confirmation(1)
    assert len(broker.publishing.streams) == 4
    broker.publishing.scripts.append(full)
    with pytest.raises(errors.LimitError, match="1 of 1"):
        publisher(broker).publish("m").result(SOON_S)


@pytest.mark.parametrize("kind", [errors.PublisherForgottenError, errors.HistoryChangedError])
def test_refused_publisher_fails_with_outcome_unknown(broker, publisher, kind):
    """P10, Q8: a forgotten publisher, or one of another history, takes no new id by itself."""
    refusal = kind("This publisher is not known any more.")
    broker.publishing.scripts.extend([fake.answering(end=fake.Cut), fake.refusing(refusal)])
    out = publisher(broker)
    with pytest.raises(errors.OutcomeUnknownError, match=refusal.message) as failure:
        out.publish(b"a").result(SOON_S)
    assert failure.value.fields["cause"] == refusal.code
    with pytest.raises(errors.ClosedError, match=refusal.message):
        out.publish(b"b")
    with pytest.raises(errors.OutcomeUnknownError):
        out.close()
    assert client_threads() == []


def test_no_broker_names_endpoint_and_cause():
    """P13: what was never sent fails with a known outcome, endpoint and cause."""
    endpoint = "127.0.0.1:1"
    out = Publisher(endpoint, routing_key="q", retry_total_ms=150)
    future = out.publish(b"a")
    with pytest.raises(errors.BrokerUnavailableError, match=endpoint) as failure:
        future.result(SOON_S)
    assert failure.value.fields["endpoint"] == endpoint
    assert "refused" in failure.value.fields["cause"]
    with pytest.raises(errors.BrokerUnavailableError):
        out.close()
    with TransactionalPublisher(endpoint, routing_key="q", retry_total_ms=150) as out:
        out.publish("a")
        with pytest.raises(errors.BrokerUnavailableError, match=endpoint):
            out.commit(SOON_S)


def test_blocked_broker_is_told_and_respected(broker, publisher):
    """P14: reported by callback and property; meanwhile neither data nor probes are sent."""
    told = []
    blocked, release = threading.Event(), threading.Event()

    def on_blocked(reason):
        told.append(reason)
        blocked.set()

    full = fake.blocked_until(release)
    broker.publishing.scripts.append(fake.answering(fake.confirm(1), *full))
    with publisher(broker, on_blocked=on_blocked, publish_ack_timeout_ms=20) as out:
        assert out.blocked is None
        out.publish(b"a")
        assert blocked.wait(SOON_S)
        assert out.blocked == "disk 99 % full"
        sent = len(broker.publishing.streams[0])
        future = out.publish(b"b")
        with pytest.raises(errors.BrokerUnavailableError, match="disk 99 % full"):
            out.flush(0.1)
        assert len(broker.publishing.streams[0]) == sent
        release.set()
        assert future.result(SOON_S) == Confirmation(2)
        assert out.blocked is None
    assert told == ["disk 99 % full", None]


def test_many_threads_share_a_publisher(broker, publisher):
    """P2, P3: numbers count from 1, and each message of each thread is confirmed once."""
    bodies = [f"m{number}" for number in range(2000)]
    with publisher(broker, window_messages=200) as out, ThreadPoolExecutor(4) as pool:
        futures = list(pool.map(out.publish, bodies))
    assert sorted(each.result().number for each in futures) == list(range(1, 2001))
    assert sorted(scripts.sent(broker)) == sorted(body.encode() for body in bodies)
    assert client_threads() == []


def test_callbacks_may_publish_and_not_flush(broker):
    """P14: a publish from a callback does not wait for the callback's thread; a flush would."""
    replies, caught = [], []
    with scripts.publisher(broker, window_messages=1) as out:
        first = out.publish(b"a")
        first.add_done_callback(lambda _: replies.append(out.publish(b"reply")))
        first.add_done_callback(lambda _: caught.extend(refusals(out.flush)))
        out.flush(SOON_S)
        assert [each.result(SOON_S) for each in replies] == [Confirmation(2)]
    assert len(caught) == 1


def test_callback_that_exits_stops_nothing(broker, caplog):
    """P3: `sys.exit()` in a callback stops neither the publisher nor other callbacks."""
    returned = fake.answering(fake.second_returned, fake.confirm(2))
    broker.publishing.scripts.append(returned)
    with scripts.publisher(broker, on_return=sys.exit, linger_ms=LINGER_MS) as out:
        futures = [out.publish(f"m{i}") for i in range(2)]
        futures[0].add_done_callback(sys.exit)
        out.flush(SOON_S)
        assert [each.result(0).number for each in futures] == [1, 2]
        later = out.publish(b"later")
        out.flush(SOON_S)
        assert later.result(0).number == 3
    assert [each.exc_info[0] for each in caplog.records if each.exc_info] == [SystemExit] * 2


def test_close_says_that_every_answer_was_read(broker):
    """P10: `close` tells the broker to forget the publisher; an older one may refuse that."""

    def refuse(requests):
        for _ in requests:
            raise errors.InvalidArgumentError("opened once")
        yield

    broker.publishing.scripts.append(fake.answering(scripts.confirmed, then=refuse))
    out = scripts.publisher(broker)
    future = out.publish(b"a")
    out.close()
    out.close()
    assert future.result(0) == Confirmation(1)
    with pytest.raises(errors.ClosedError, match="is closed"):
        out.publish(b"b")
    (requests,) = broker.publishing.streams
    assert [each.header.WhichOneof("kind") for each in requests] == ["open", "data", "close"]
    assert client_threads() == []


def test_close_in_an_outage_names_its_cause(broker):
    """P14: the error names the connection failure, not a broker under load."""
    broker.close()
    out = scripts.publisher(broker)
    out.publish(b"a")
    with out._stream.lock:
        assert out._stream._changed.wait_for(lambda: out._stream._outage, SOON_S)
    with pytest.raises(errors.BrokerUnavailableError, match="1 publishes had no answer") as late:
        out.close(0.2)
    assert "Connection refused" in late.value.fields["cause"]
    assert "Check the address and that the broker runs" in late.value.message
    assert client_threads() == []


@pytest.mark.parametrize("batch", [False, True])
def test_a_publish_in_one_line_is_confirmed(broker, batch):
    """P3: an unreferenced publisher goes on until its publishes are answered."""
    release = threading.Event()
    broker.publishing.scripts.append(scripts.holding(release))
    if batch:
        rows = pa.record_batch({"body": [b"a", b"b"]})
        future = scripts.publisher(broker).publish_batch(rows)
    else:
        future = scripts.publisher(broker).publish(b"a")
    gc.collect()
    release.set()
    assert future.result(SOON_S) == (2 if batch else Confirmation(1))
    no_threads_are_left()


def test_batch_is_cut_into_frames_with_one_future(broker):
    """P2, P9: a large batch has one future, frames of at most 10,000 rows, order kept."""
    table = pa.table({"body": [f"m{i}" for i in range(25_000)]})
    with scripts.publisher(broker) as out:
        assert out.publish_batch(table).result(SOON_S) == 25_000
    frames = fake.data_frames(broker.publishing.streams[0])
    assert [each.header.data.rows for each in frames] == [10_000, 10_000, 5_000]
    assert [each.header.data.first_number for each in frames] == [1, 10_001, 20_001]
    assert fake.bodies(frames[2])[-1] == b"m24999"


def test_what_differs_does_not_share_a_frame(broker):
    """A frame has one exchange, flags, set of columns, and routing key or column of keys.

    The order is kept.
    """
    bare = pa.record_batch({"body": ["bare"]})
    keyed = pa.record_batch({"body": ["keyed"], "routing_key": ["x"]})
    with scripts.publisher(broker, linger_ms=LINGER_MS) as out:
        out.publish(b"a")
        out.publish(b"b", exchange="x")
        out.publish(b"c", exchange="x", mandatory=False)
        out.publish(b"d", ack_immediately=True)
        for batch, key in ((bare, None), (bare, None), (bare, "other"), (keyed, None)):
            out.publish_batch(batch, routing_key=key)
        out.publish(b"single")
        out.publish_batch(bare, exchange="e")
    frames = fake.data_frames(scripts.requests(broker))
    sent = [(each.header.data, fake.bodies(each)) for each in frames]
    assert [(d.exchange, d.mandatory, d.ack_immediately, *found) for d, found in sent] == [
        ("", True, False, b"a"),
        ("x", True, False, b"b"),
        ("x", False, False, b"c"),
        ("", True, True, b"d"),
        ("", True, False, b"bare", b"bare"),
        ("", True, False, b"bare"),
        ("", True, False, b"keyed"),
        ("", True, False, b"single"),
        ("e", True, False, b"bare"),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"body": 1}, "'body' is a int; it must be bytes or str"),
        ({"body": "\ud800"}, "'body' cannot be written as UTF-8"),
        ({"message_id": 7}, "'message_id' is a int"),
        ({"headers": {"k": 1}}, "'headers' is a int"),
        ({"headers": [("k", "v")]}, "'headers' is a list"),
        ({"routing_key": "k" * 256}, "256 bytes; the limit is 255"),
        ({"exchange": 5}, "'exchange' is a int"),
        ({"persistent": "yes"}, "'persistent' is a str; it must be True or False"),
        ({"mandatory": "yes"}, "'mandatory' is a str"),
        ({"ack_immediately": 1}, "'ack_immediately' is a int"),
        ({"queue": "q", "routing_key": "q"}, "Give 'queue' alone, or the other two"),
        ({"queue": ""}, "A queue's name has 1 to 255 bytes, not 0"),
        ({"ttl_ms": "1 s"}, "'ttl_ms' is a str"),
        ({"ttl_ms": 0}, "'ttl_ms' is 0; it must be 1 to"),
        ({"ttl_ms": 1 << 62}, "a hundred years"),
        ({"published_at": "now"}, "'published_at' is a str"),
        ({"published_at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"published_at": datetime.max.replace(tzinfo=FAR_WEST)}, "every time zone"),
    ],
)
def test_bad_arguments_are_refused_at_once(broker, arguments, expected):
    """A bad argument raises at the call, and the next message is published."""
    with scripts.publisher(broker) as out:
        with pytest.raises(errors.InvalidArgumentError, match=expected):
            out.publish(**{"body": b""} | arguments)
        assert out.publish(b"good").result(SOON_S) == Confirmation(1)


@pytest.mark.parametrize("kind", [*KINDS.values(), TransactionalPublisher])
def test_a_queue_is_named_as_everywhere_else(broker, kind):
    """Q2, P13: `queue` overrides the publisher's exchange and routing key, not a batch's own."""
    keyed = pa.record_batch({"body": [b"c"], "routing_key": ["other"]})
    with scripts.publisher(broker, kind=kind, exchange="events") as out:
        out.publish(b"a", queue="bills")
        out.publish_batch(pa.record_batch({"body": [b"b"]}), queue="bills")
        with pytest.raises(errors.InvalidArgumentError, match="a column"):
            out.publish_batch(keyed, queue="bills").result(SOON_S)
        if kind is TransactionalPublisher:
            out.commit(SOON_S)
    frames = fake.data_frames(scripts.requests(broker))
    keys = [block.decode(each.block).header.routing_key for each in frames]
    assert {each.header.data.exchange for each in frames} == {""}
    assert (set(keys), scripts.sent(broker)) == ({"bills"}, [b"a", b"b"])


def test_examples_of_the_docstring_are_right(broker, capsys):
    """The examples in the docstring of `Publisher` run and print their documented output."""
    paragraphs = Publisher.__doc__.split("\n\n")
    examples = [each for each in paragraphs if each.lstrip().startswith("with ")]
    assert len(examples) == 2
    for each in examples:
        program = textwrap.dedent(each).replace("127.0.0.1:5775", broker.endpoint)
        exec(program, {"Publisher": Publisher, "pyarrow": pa})  # noqa: S102
    assert capsys.readouterr().out == "1\n2\n"
