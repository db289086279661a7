"""The publisher's answers against a scripted broker: the client's side of the rules P2 to P14."""

import threading
from functools import partial

import pytest

from ackq import errors
from ackq.client import Confirmation, Publisher, TransactionalPublisher
from ackq.v1 import publishing_pb2
from tests.fakes import scripted_broker as fake
from tests.unit.client.publishing import scripts
from tests.unit.client.publishing.scripts import KINDS, LINGER_MS
from tests.unit.client.threads import SOON_S, client_threads


@pytest.fixture(params=KINDS)
def publisher(request):
    """Makes publishers of each kind: the tests hold for both."""
    return partial(scripts.publisher, kind=KINDS[request.param])


def test_nack_fails_its_messages_alone(broker, publisher):
    """P8: the future and `flush` raise the reason; other messages are confirmed."""
    broker.publishing.scripts.append(
        fake.answering(
            fake.nack(2, 3, errors.QueueFullError("The queue 'orders' is full.", queue="orders")),
            fake.confirm(4),
        )
    )
    with publisher(broker, linger_ms=LINGER_MS) as out:
        futures = [out.publish(f"m{i}") for i in range(4)]
        with pytest.raises(errors.QueueFullError, match="full") as failure:
            out.flush(SOON_S)
        assert failure.value.fields == {"queue": "orders"}
        out.flush(SOON_S)  # a failure is reported once
        assert out.unconfirmed == 0
    assert [type(each.exception()) for each in futures] == [
        type(None),
        errors.QueueFullError,
        errors.QueueFullError,
        type(None),
    ]
    # A shared error that is raised again and again would grow one traceback.
    assert futures[1].exception() is not futures[2].exception()


def test_confirms_out_of_order(broker, publisher):
    """P9: confirms may come in any order and shape; each message is reported once."""
    broker.publishing.scripts.append(
        fake.answering(
            fake.confirm(5, first=5),
            fake.confirm(2, first=2),
            fake.confirm(3),
            fake.confirm(3),
            fake.confirm(6),
        )
    )
    order = []
    with publisher(broker, linger_ms=LINGER_MS) as out:
        for i in range(6):
            out.publish(f"m{i}").add_done_callback(lambda f: order.append(f.result().number))
    assert order == [5, 2, 1, 3, 4, 6]


def test_a_return_without_its_messages_is_an_error(broker):
    """P7, P8: a return with another row count fails all unanswered publishes; no thread dies."""

    def returned(request):
        return fake.returned(1, 2, block=request.block)  # three rows

    broker.publishing.scripts.append(fake.answering(returned, end=None))
    out = scripts.publisher(broker, linger_ms=LINGER_MS, on_return=lambda _: None)
    futures = [out.publish(f"m{i}") for i in range(3)]
    with pytest.raises(
        errors.OutcomeUnknownError, match="returned 2 publish numbers with 3 messages"
    ):
        out.flush(SOON_S)
    assert {type(each.exception(SOON_S)) for each in futures} == {errors.OutcomeUnknownError}
    out.close()


def test_return_without_a_listener_fails_its_future_and_the_flush(broker, publisher):
    """P7: without `on_return` a return is an error; messages are mandatory by default."""
    broker.publishing.scripts.append(fake.answering(fake.returned(2, 3), fake.confirm(5)))
    out = publisher(broker, linger_ms=LINGER_MS)
    futures = [out.publish(f"m{i}") for i in range(5)]
    with pytest.raises(errors.UnroutableError, match="No queue"):
        out.close()
    assert [type(each.exception(0)) for each in futures] == [
        type(None),
        errors.UnroutableError,
        errors.UnroutableError,
        type(None),
        type(None),
    ]
    assert futures[4].result(0) == Confirmation(5)
    (frame,) = fake.data_frames(broker.publishing.streams[0])
    assert frame.header.data.mandatory


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


@pytest.mark.parametrize(
    "refusal",
    [
        errors.PublisherForgottenError("This publisher is not known any more."),
        errors.HistoryChangedError("The publisher began in history 1."),
    ],
    ids=lambda refusal: refusal.code,
)
def test_refused_publisher_fails_with_outcome_unknown(broker, publisher, refusal):
    """P10, Q8: a forgotten publisher, or one of another history, takes no new id by itself."""
    broker.publishing.scripts.extend([fake.answering(end=fake.Cut), fake.refusing(refusal)])
    out = publisher(broker)
    future = out.publish(b"a")
    with pytest.raises(errors.OutcomeUnknownError, match=refusal.message) as failure:
        future.result(SOON_S)
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
    blocked = threading.Event()
    release = threading.Event()

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


def test_answer_to_an_unsent_number_ends_the_publisher(broker, publisher):
    """P3: a confirm of a number that was never published ends the publisher."""

    broker.publishing.scripts.append(fake.answering(fake.confirm(9)))
    out = publisher(broker)
    with pytest.raises(errors.OutcomeUnknownError, match="answered publish number 9"):
        out.publish(b"a").result(SOON_S)
    with pytest.raises(errors.OutcomeUnknownError):
        out.close()


def test_many_threads_share_a_publisher(broker, publisher):
    """P2, P3: numbers count from 1, and each message of each thread is confirmed once."""
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
    assert client_threads() == []
