"""The publisher against a scripted broker: the client's side of the rules P2 to P14."""

import gc
import subprocess
import sys
import threading
import warnings
from concurrent.futures import wait

import pyarrow as pa
import pytest

from ackq import errors, limits
from ackq.client import Confirmation, Publisher
from ackq.v1 import messages_pb2, publishing_pb2
from ackq.wire import block
from tests.unit.client import fake_broker as fake

SOON_S = 10


def publisher(broker, **options):
    return Publisher(broker.endpoint, routing_key="orders", **options)


def publisher_threads():
    return [each for each in threading.enumerate() if each.name.startswith("ackq-")]


def test_every_publish_is_confirmed_with_its_number(broker):
    """P2, P3: numbers count from 1, each future gets exactly one answer."""
    with publisher(broker) as out:
        futures = [out.publish(f"m{i}") for i in range(100)]
    assert [each.result() for each in futures] == [Confirmation(i) for i in range(1, 101)]
    assert publisher_threads() == []


def test_single_publishes_share_frames(broker):
    """A thousand publishes make a few frames, numbered without a gap."""
    with publisher(broker) as out:
        for i in range(1000):
            out.publish(f"m{i}")
    frames = fake.data_frames(broker.publishing.streams[0])
    assert len(frames) < 50
    assert [body for each in frames for body in fake.bodies(each)] == [
        f"m{i}".encode() for i in range(1000)
    ]
    firsts = [each.header.data.first_number for each in frames]
    rows = [each.header.data.rows for each in frames]
    assert firsts == [1 + sum(rows[:at]) for at in range(len(rows))]


def test_frame_stays_within_its_target(broker):
    """Single publishes go in frames of about 1 MiB."""
    body = b"x" * 300_000
    with publisher(broker, linger_ms=1000) as out:
        for _ in range(12):
            out.publish(body)
    rows = [each.header.data.rows for each in fake.data_frames(broker.publishing.streams[0])]
    assert rows == [3, 3, 3, 3]


def test_message_keeps_its_fields(broker):
    """P12: fields and delivery mode of each message reach the wire; absent columns do not."""
    with publisher(broker, linger_ms=1000) as out:
        out.publish(b"a", message_id="1", headers={"k": "v"}, persistent=False)
        out.publish("b", routing_key="other")
    (frame,) = fake.data_frames(broker.publishing.streams[0])
    header, batch = block.decode(frame.block, validate=True)
    assert header.delivery_mode == messages_pb2.DELIVERY_MODE_PERSISTENT
    assert batch.to_pylist() == [
        {
            "body": b"a",
            "routing_key": "orders",
            "message_id": "1",
            "headers": [("k", "v")],
            "persistent": False,
        },
        {
            "body": b"b",
            "routing_key": "other",
            "message_id": None,
            "headers": [],
            "persistent": None,
        },
    ]


def test_constant_routing_key_travels_once(broker):
    """P12: a non-persistent publisher says so in the block's header, as it does its routing key."""
    with publisher(broker, persistent=False) as out:
        out.publish(b"a")
    (frame,) = fake.data_frames(broker.publishing.streams[0])
    header, batch = block.decode(frame.block, validate=True)
    assert (header.routing_key, header.delivery_mode) == (
        "orders",
        messages_pb2.DELIVERY_MODE_NON_PERSISTENT,
    )
    assert batch.schema.names == ["body"]


def test_destinations_do_not_share_a_frame(broker):
    """A frame has one exchange, one `mandatory`, one `ack_immediately`; order is kept."""
    with publisher(broker, linger_ms=1000) as out:
        out.publish(b"a")
        out.publish(b"b", exchange="x")
        out.publish(b"c", exchange="x", mandatory=True)
        out.publish(b"d", ack_immediately=True)
    frames = [each.header.data for each in fake.data_frames(broker.publishing.streams[0])]
    assert [(each.exchange, each.mandatory, each.ack_immediately) for each in frames] == [
        ("", False, False),
        ("x", False, False),
        ("x", True, False),
        ("", False, True),
    ]


def test_nack_fails_its_messages_alone(broker):
    """P8: the reason is in the future and in flush; the others are confirmed."""

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        yield fake.nack(2, 3, errors.QueueFullError("The queue 'orders' is full.", queue="orders"))
        yield fake.confirm(4)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with publisher(broker, linger_ms=1000) as out:
        futures = [out.publish(f"m{i}") for i in range(4)]
        with pytest.raises(errors.QueueFullError, match="full") as failure:
            out.flush(SOON_S)
        assert failure.value.fields == {"queue": "orders"}
        out.flush(SOON_S)  # a failure is told once
        assert out.unconfirmed == 0
    assert [type(each.exception()) for each in futures] == [
        type(None),
        errors.QueueFullError,
        errors.QueueFullError,
        type(None),
    ]


def test_confirms_out_of_order(broker):
    """P9: answers may come in any order and shape; each message is told once."""

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        yield fake.confirm(5, first=5)
        yield fake.confirm(2, first=2)
        yield fake.confirm(3)
        yield fake.confirm(3)
        yield fake.confirm(6)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    order = []
    with publisher(broker, linger_ms=1000) as out:
        for i in range(6):
            out.publish(f"m{i}").add_done_callback(lambda f: order.append(f.result().number))
    assert order == [5, 2, 1, 3, 4, 6]


def test_return_comes_before_its_confirm(broker):
    """P7: a mandatory message that no queue wants is returned, then confirmed with the reason."""

    def script(requests):
        next(requests)
        yield fake.opened()
        request = next(requests)
        header, batch = block.decode(request.block)
        yield publishing_pb2.PublishResponse(
            header=publishing_pb2.PublishAnswer(
                returned=publishing_pb2.PublishReturn(
                    numbers=[2], reason=fake.detail(errors.UnroutableError("No queue."))
                )
            ),
            block=block.encode(batch.slice(1, 1), routing_key=header.routing_key),
        )
        yield fake.confirm(3)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    events = []
    with publisher(broker, mandatory=True, linger_ms=1000, on_return=events.append) as out:
        futures = [out.publish(f"m{i}") for i in range(3)]
        futures[1].add_done_callback(events.append)
    returned, future = events
    assert future is futures[1]
    assert returned.numbers == (2,)
    assert returned.messages.to_pylist() == [
        {
            "body": b"m1",
            "routing_key": "orders",
            "message_id": None,
            "correlation_id": None,
            "reply_to": None,
            "content_type": None,
            "headers": [],
            "published_at": None,
            "persistent": True,
        }
    ]
    assert str(futures[1].result().returned) == "No queue."
    assert futures[2].result().returned is None


def test_return_without_a_listener_fails_the_flush(broker):
    """P7: nobody else would hear of it."""

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        yield fake.answer(
            returned=publishing_pb2.PublishReturn(
                numbers=[1], reason=fake.detail(errors.UnroutableError("No queue."))
            )
        )
        yield fake.confirm(1)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with pytest.raises(errors.UnroutableError, match="No queue"), publisher(broker) as out:
        out.publish(b"a", mandatory=True)


def test_cut_in_mid_publish_retransmits_the_same_numbers(broker):
    """P10: on a new stream exactly what is unconfirmed goes again, under the same numbers."""

    def cut(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        yield fake.confirm(2)
        yield fake.confirm(4, first=4)
        raise fake.Cut

    broker.publishing.scripts.append(cut)
    with publisher(broker, linger_ms=1000) as out:
        futures = [out.publish(f"m{i}") for i in range(6)]
    assert [each.result().number for each in futures] == [1, 2, 3, 4, 5, 6]
    first, second = broker.publishing.streams
    assert not first[0].header.open.resume
    assert second[0].header.open.resume
    assert second[0].header.open.publisher_id == first[0].header.open.publisher_id
    assert second[0].header.lowest_unanswered == 3
    again = fake.data_frames(second)
    assert [(each.header.data.first_number, fake.bodies(each)) for each in again] == [
        (3, [b"m2"]),
        (5, [b"m4", b"m5"]),
    ]


def test_publisher_that_was_never_opened_does_not_resume(broker):
    """P10: a broker that never answered the open is not asked for a state that it has not."""

    def refuse(requests):
        next(requests)
        raise fake.Cut
        yield

    broker.publishing.scripts.append(refuse)
    with publisher(broker) as out:
        out.publish(b"a")
    assert [each[0].header.open.resume for each in broker.publishing.streams] == [False, False]
    assert fake.data_frames(broker.publishing.streams[0]) == []


def test_lowest_unanswered_travels_with_every_frame(broker):
    """P10: the broker may forget what is below."""
    with publisher(broker) as out:
        for i in range(3):
            out.publish(f"m{i}").result(SOON_S)
    assert [each.header.lowest_unanswered for each in broker.publishing.streams[0]] == [1, 1, 2, 3]


def test_late_answer_is_probed_and_only_what_is_missing_goes_again(broker):
    """P10: after publish_ack_timeout a probe asks; only what the broker never saw goes again."""

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        probe = next(requests).header.probe
        assert (probe.first_number, probe.last_number) == (1, 4)
        yield fake.answer(probed=publishing_pb2.PublishProbed(missing_first=[2], missing_last=[3]))
        yield fake.confirm(1)
        again = next(requests)
        assert (again.header.data.first_number, fake.bodies(again)) == (2, [b"m1", b"m2"])
        yield fake.confirm(4)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with publisher(broker, linger_ms=20, publish_ack_timeout_ms=50) as out:
        futures = [out.publish(f"m{i}") for i in range(4)]
        wait(futures, SOON_S)
    assert [each.result().number for each in futures] == [1, 2, 3, 4]
    assert len(broker.publishing.streams) == 1


def test_forgotten_publisher_fails_with_outcome_unknown(broker):
    """P10: a forgotten id is never replaced by a new one on its own."""

    def cut(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        raise fake.Cut

    def forgotten(requests):
        next(requests)
        raise errors.PublisherForgottenError("This publisher is not known any more.")
        yield

    broker.publishing.scripts.extend([cut, forgotten])
    out = publisher(broker)
    future = out.publish(b"a")
    with pytest.raises(errors.OutcomeUnknownError, match="not known any more") as failure:
        future.result(SOON_S)
    assert failure.value.fields["cause"] == "publisher_forgotten"
    with pytest.raises(errors.ClosedError, match="not known any more"):
        out.publish(b"b")
    with pytest.raises(errors.OutcomeUnknownError):
        out.close()
    assert publisher_threads() == []


def test_restored_broker_fails_with_outcome_unknown(broker):
    """Q8: a broker with another history is not asked to de-duplicate numbers that it never saw."""

    def cut(requests):
        next(requests)
        yield fake.opened("history-1")
        next(requests)
        raise fake.Cut

    def other(requests):
        next(requests)
        yield fake.opened("history-2")
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.extend([cut, other])
    out = publisher(broker)
    future = out.publish(b"a")
    with pytest.raises(errors.OutcomeUnknownError, match="another history"):
        future.result(SOON_S)
    with pytest.raises(errors.OutcomeUnknownError):
        out.close()


def test_no_broker_names_endpoint_and_cause():
    """What was never sent has a known outcome: it did not happen."""
    endpoint = "127.0.0.1:1"
    out = Publisher(endpoint, routing_key="q", retry_total_ms=150)
    future = out.publish(b"a")
    with pytest.raises(errors.BrokerUnavailableError, match=endpoint) as failure:
        future.result(SOON_S)
    assert failure.value.fields["endpoint"] == endpoint
    assert "refused" in failure.value.fields["cause"]
    with pytest.raises(errors.BrokerUnavailableError):
        out.close()


def test_full_window_blocks_publish_until_an_answer(broker):
    """P14: the window bounds what is unanswered; an answer lets the next publish in."""
    release = threading.Event()

    def script(requests):
        next(requests)
        yield fake.opened()
        first = next(requests)
        release.wait(SOON_S)
        yield fake.confirm(fake.last_number(first))
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with publisher(broker, window_messages=3) as out:
        for i in range(3):
            out.publish(f"m{i}")
        late = threading.Thread(target=out.publish, args=(b"late",))
        late.start()
        late.join(0.05)
        assert late.is_alive()
        assert out.unconfirmed == 3
        release.set()
        late.join(SOON_S)
        assert not late.is_alive()


def test_message_larger_than_the_window_still_goes(broker):
    """P14: into an empty window everything fits, or it could never be sent."""
    with publisher(broker, window_bytes=10) as out:
        assert out.publish(b"x" * 100).result(SOON_S) == Confirmation(1)


def test_blocked_broker_is_told_and_respected(broker):
    """P14: nothing is sent between Blocked and Unblocked, and no probe either."""
    told = []
    blocked = threading.Event()
    release = threading.Event()

    def on_blocked(reason):
        told.append(reason)
        blocked.set()

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        yield fake.confirm(1)
        yield fake.answer(blocked=publishing_pb2.PublishBlocked(reason="disk 99 % full"))
        release.wait(SOON_S)
        yield fake.answer(unblocked=publishing_pb2.PublishUnblocked())
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with publisher(broker, on_blocked=on_blocked, publish_ack_timeout_ms=20) as out:
        out.publish(b"a")
        assert blocked.wait(SOON_S)
        future = out.publish(b"b")
        with pytest.raises(errors.BrokerUnavailableError, match="disk 99 % full"):
            out.flush(0.1)
        assert len(broker.publishing.streams[0]) == 2
        release.set()
        assert future.result(SOON_S) == Confirmation(2)
    assert told == ["disk 99 % full", None]


def test_callbacks_may_publish(broker):
    """P14: a publish from a callback does not wait for the thread that it runs on."""
    with publisher(broker, window_messages=1) as out:
        replies = []
        out.publish(b"a").add_done_callback(lambda _: replies.append(out.publish(b"reply")))
        out.flush(SOON_S)
        assert [each.result(SOON_S) for each in replies] == [Confirmation(2)]


def test_flush_in_a_callback_is_refused(broker):
    """It would wait for itself."""
    caught = []

    def flush(_):
        try:
            out.flush()
        except errors.PreconditionFailedError as error:
            caught.append(error)

    with publisher(broker) as out:
        out.publish(b"a").add_done_callback(flush)
    assert len(caught) == 1


def test_batch_is_cut_into_frames_with_one_future(broker):
    """K3-sized batches: one future, frames of at most 10,000 rows, order kept."""
    table = pa.table({"body": [f"m{i}" for i in range(25_000)]})
    with publisher(broker) as out:
        assert out.publish_batch(table).result(SOON_S) == 25_000
    frames = fake.data_frames(broker.publishing.streams[0])
    assert [each.header.data.rows for each in frames] == [10_000, 10_000, 5_000]
    assert [each.header.data.first_number for each in frames] == [1, 10_001, 20_001]
    assert fake.bodies(frames[2])[-1] == b"m24999"


def test_batch_fails_once_all_its_rows_are_answered(broker):
    """P3, P8: the future of a batch has the first failure."""

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        yield fake.nack(2, 2, errors.NackError("Over a limit."))
        yield fake.confirm(3)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with publisher(broker) as out:
        future = out.publish_batch(pa.table({"body": [b"a", b"b", b"c"]}))
        with pytest.raises(errors.NackError, match="Over a limit"):
            future.result(SOON_S)
        with pytest.raises(errors.NackError):
            out.flush(SOON_S)


def test_empty_batch_is_confirmed_at_once(broker):
    """No rows, no frame."""
    with publisher(broker) as out:
        assert out.publish_batch(pa.table({"body": pa.array([], pa.binary())})).result(0) == 0
    assert broker.publishing.streams == []


def test_batch_keeps_its_place_among_single_messages(broker):
    """Messages keep the order in which they were published."""
    with publisher(broker, linger_ms=1000) as out:
        out.publish(b"before")
        out.publish_batch(pa.table({"body": [b"batch"]}))
        out.publish(b"after")
    frames = fake.data_frames(broker.publishing.streams[0])
    assert [fake.bodies(each) for each in frames] == [[b"before"], [b"batch"], [b"after"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"body": 1}, "'body' is a int; it must be bytes or str"),
        ({"body": b"", "message_id": 7}, "'message_id' is a int"),
        ({"body": b"", "message_id": "\ud800"}, "cannot be written as UTF-8"),
        ({"body": b"", "headers": {"k": 1}}, "'headers' is a int"),
        ({"body": b"", "routing_key": "k" * 256}, "256 bytes; the limit is 255"),
    ],
)
def test_bad_arguments_are_refused_at_once(broker, arguments, expected):
    """A bad message is told to its caller and spoils nothing."""
    with publisher(broker) as out:
        with pytest.raises(errors.InvalidArgumentError, match=expected):
            out.publish(**arguments)
        assert out.publish(b"good").result(SOON_S) == Confirmation(1)


def test_message_over_the_limit_names_size_and_limit(broker):
    """The limit is the broker's where that is lower, once it has been heard of."""

    def script(requests):
        next(requests)
        yield fake.opened(max_message_bytes=100)
        yield from fake.confirm_all(requests)

    broker.publishing.scripts.append(script)
    with publisher(broker) as out:
        with pytest.raises(errors.MessageTooLargeError) as failure:
            out.publish(bytes(limits.MAX_MESSAGE_BYTES))
        assert failure.value.fields["limit"] == str(limits.MAX_MESSAGE_BYTES)
        out.publish(b"a").result(SOON_S)
        with pytest.raises(errors.MessageTooLargeError, match="107 bytes; the limit is 100"):
            out.publish(bytes(101))


def test_answer_to_an_unsent_number_ends_the_publisher(broker):
    """P3: a confirm of what was never published would be a lie."""

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        yield fake.confirm(9)

    broker.publishing.scripts.append(script)
    out = publisher(broker)
    with pytest.raises(errors.OutcomeUnknownError, match="answered publish number 9"):
        out.publish(b"a").result(SOON_S)
    with pytest.raises(errors.OutcomeUnknownError):
        out.close()


def test_close_with_a_bound_gives_up(broker):
    """P14: a broker that does not answer holds close no longer than it was told to wait."""

    def script(requests):
        next(requests)
        yield fake.opened()
        for _ in requests:
            pass

    broker.publishing.scripts.append(script)
    out = publisher(broker)
    future = out.publish(b"a")
    with pytest.raises(errors.BrokerUnavailableError, match=r"1 publishes unanswered for 0\.2 s"):
        out.close(0.2)
    assert isinstance(future.exception(0), errors.OutcomeUnknownError)
    assert publisher_threads() == []


@pytest.mark.parametrize("wait", ["", "future.result(10)"])
def test_unclosed_publisher_does_not_hold_up_the_exit(broker, wait):
    """A program that forgets to close ends all the same."""
    program = f"""
from ackq.client import Publisher
publisher = Publisher({broker.endpoint!r}, routing_key="q")
future = publisher.publish(b"a")
{wait}
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""


def test_closed_publisher_takes_nothing(broker):
    """Close is final and may be repeated."""
    out = publisher(broker)
    out.publish(b"a")
    out.close()
    out.close()
    with pytest.raises(errors.ClosedError, match="closed"):
        out.publish(b"b")


def test_leaving_by_an_exception_does_not_wait(broker):
    """What is unanswered fails: sent or not is told apart."""
    silent = threading.Event()

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        silent.set()
        yield from ()
        for _ in requests:
            pass

    broker.publishing.scripts.append(script)
    futures = []

    def leave():
        with publisher(broker) as out:
            futures.append(out.publish(b"a"))
            assert silent.wait(SOON_S)
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert isinstance(futures[0].exception(), errors.OutcomeUnknownError)
    assert publisher_threads() == []


def test_forsaken_publisher_leaves_no_thread(broker):
    """A publisher that is collected ends its stream and says what was lost."""
    silent = threading.Event()

    def script(requests):
        next(requests)
        yield fake.opened()
        next(requests)
        silent.set()
        for _ in requests:
            pass

    broker.publishing.scripts.append(script)
    out = publisher(broker)
    future = out.publish(b"a")
    assert silent.wait(SOON_S)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del out
        gc.collect()
    assert ["1 unconfirmed" in str(each.message) for each in caught] == [True]
    assert isinstance(future.exception(SOON_S), errors.OutcomeUnknownError)
    for thread in publisher_threads():
        thread.join(SOON_S)
    assert publisher_threads() == []


def test_many_threads_share_a_publisher(broker):
    """Every message of every thread is confirmed once."""
    futures = []

    def publish(name):
        futures.extend([out.publish(f"{name}-{i}") for i in range(500)])

    with publisher(broker, window_messages=200) as out:
        threads = [threading.Thread(target=publish, args=(name,)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join(SOON_S)
    assert sorted(each.result().number for each in futures) == list(range(1, 2001))
    sent = [
        body
        for each in fake.data_frames(broker.publishing.streams[0])
        for body in fake.bodies(each)
    ]
    assert len(sent) == len(set(sent)) == 2000
