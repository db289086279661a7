"""The transactional publisher against a scripted broker: the client's side of P1, P7, P13, P14."""

import gc
import threading
from functools import partial

import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import Committed, TransactionalPublisher
from ackq.v1 import publishing_pb2
from tests.eventually import eventually
from tests.fakes import scripted_broker as fake
from tests.unit.client.publishing import scripts
from tests.unit.client.threads import SOON_S, client_threads, no_threads_are_left, refusals

publisher = partial(scripts.publisher, kind=TransactionalPublisher)


def kinds(requests):
    return [each.header.WhichOneof("kind") for each in requests]


def answer_to(request, **fields):
    """The answer to a commit."""
    request.header.commit.MergeFrom(publishing_pb2.PublishTransaction(**fields))
    return fake.answer(transaction=request.header.commit)


def commit_of(requests):
    """The next commit among the requests."""
    return next(each for each in requests if each.header.HasField("commit"))


answering_commit = partial(fake.answering, after=commit_of, then=fake.commit_all)
cut_at_commit = fake.answering(after=commit_of, end=fake.Cut)


def test_transactions_follow_each_other(broker):
    """P13: each transaction has its id, messages and one commit; the open names the mode."""
    with publisher(broker) as out:
        with out.transaction():
            assert [out.publish("a"), out.publish("b", exchange="x")] == [1, 2]
            assert out.uncommitted == 2
        assert out.publish_batch(pa.record_batch({"body": ["c", "d"]})) == 2
        assert out.commit() == Committed(2, 0)
        assert out.commit() == Committed(0, 0)
        assert out.uncommitted == 0
    (requests,) = broker.publishing.streams
    assert kinds(requests) == ["open", "data", "data", "commit", "data", "commit", "close"]
    assert requests[0].header.open.mode == publishing_pb2.PUBLISH_MODE_TRANSACTION
    first, second, third = (each.header.data for each in fake.data_frames(requests))
    assert [each.first_number for each in (first, second, third)] == [1, 2, 3]
    assert first.transaction_id == second.transaction_id != third.transaction_id
    commits = [each.header.commit for each in requests if each.header.HasField("commit")]
    assert [each.messages for each in commits] == [2, 2]
    assert commits[0].transaction_id == first.transaction_id
    assert client_threads() == []


def leave(out):
    """Leaves a transaction block by an exception."""
    with out.transaction():
        out.publish("a")
        raise KeyError


def test_a_block_left_by_an_exception_rolls_back(broker):
    """P13: unsent messages are dropped without a request. Blocks do not nest."""
    with publisher(broker) as out:
        with pytest.raises(KeyError):
            leave(out)
        assert out.uncommitted == 0
        with out.transaction():
            out.publish("b")
            with pytest.raises(errors.PreconditionFailedError, match="1 messages"):
                leave(out)
    assert scripts.sent(broker) == [b"b"]


def test_a_cut_transaction_is_rolled_back_and_runs_again(broker):
    """P13: publish and commit raise; a rollback or the failed commit ends the transaction."""
    sent = threading.Event()
    broker.publishing.scripts.extend([fake.answering(fake.held(sent), end=fake.Cut)] * 2)
    with publisher(broker) as out:
        for end in (out.commit, out.rollback):
            sent.clear()
            out.publish_batch(pa.record_batch({"body": ["a"]}))
            sent.set()
            eventually("the cut", lambda: out._stream._state.transaction.lost)
            with pytest.raises(errors.TransactionRolledBackError, match="cut before the commit"):
                out.publish("b")
            if end == out.commit:
                with pytest.raises(errors.TransactionRolledBackError):
                    out.commit(SOON_S)
            else:
                out.rollback()
        out.publish("c")
        assert out.commit(SOON_S).messages == 1
    assert kinds(broker.publishing.streams[-1]) == ["open", "data", "commit", "close"]


def test_a_refused_row_fails_the_commit(broker):
    """P8, P13: the commit fails with the broker's reason; the next transaction succeeds."""
    full = fake.detail(errors.QueueFullError("The queue 'orders' is full.", queue="orders"))
    broker.publishing.scripts.append(answering_commit(partial(answer_to, reason=full)))
    with publisher(broker) as out:
        out.publish("a")
        with pytest.raises(errors.QueueFullError, match="full") as failure:
            out.commit(SOON_S)
        assert failure.value.fields == {"queue": "orders"}
        with out.transaction():
            out.publish("b")


def returning(requests):
    """A script that returns the second message of a transaction before its commit."""
    next(requests)
    yield fake.opened()
    yield fake.second_returned(next(requests))
    yield answer_to(commit_of(requests))
    yield from fake.commit_all(requests)


# A later stream: the repeated commit, preceded by its returns without messages.
returning_again = answering_commit(fake.returned(2, 4), partial(answer_to, repeated=True))


def cut_after(returns):
    """A script that is cut at the commit, after the given number of returns."""

    def script(requests):
        answers = returning(requests)
        for _ in range(1 + returns):
            yield next(answers)
        commit_of(requests)
        raise fake.Cut

    return script


@pytest.mark.parametrize("returns", [0, 1])
def test_returns_that_were_lost_with_the_answer_come_with_the_next(broker, returns):
    """P7, P13: each message is returned once, on whichever stream; the commit is repeated alone."""
    broker.publishing.scripts.extend([cut_after(returns), returning_again])
    returned = []
    with publisher(broker, mandatory=True, on_return=returned.append) as out:
        out.publish_batch(pa.record_batch({"body": ["a", "b"], "message_id": ["one", "two"]}))
        out.publish("c")
        out.publish("d", routing_key="nowhere", headers={"h": "v"}, persistent=False)
        assert out.commit(SOON_S) == Committed(4, 2)
    numbers = [each.numbers for each in returned]
    assert numbers == ([(2,), (4,)] if returns else [(2, 4)])
    assert kinds(broker.publishing.streams[1]) == ["open", "commit", "close"]
    rows = [row for each in returned for row in each.messages.to_pylist()]
    kept = ("body", "routing_key", "message_id", "headers", "persistent")
    assert [tuple(row[name] for name in kept) for row in rows] == [
        (b"b", "orders", "two", [], True),
        (b"d", "nowhere", None, [("h", "v")], False),
    ]
    assert len({each.messages.schema for each in returned}) == 1


@pytest.mark.parametrize("cut", [False, True])
def test_a_return_that_nobody_hears_of_fails_a_commit_that_is_done(broker, cut):
    """P7, P13: the error says that the transaction is committed, so it is not published again."""
    broker.publishing.scripts.extend([cut_after(0), returning_again] if cut else [returning])
    fields = {"returned": "2"} if cut else {"returned": "1", "routing_key": "orders"}
    with publisher(broker, mandatory=True) as out:
        out.publish_batch(pa.record_batch({"body": ["a", "b", "c", "d"]}))
        said = r"is committed, but messages are in no queue \([12] of 4\)"
        with pytest.raises(errors.UnroutableError, match=said) as failure:
            out.commit(SOON_S)
        assert failure.value.fields == {"committed": "True", **fields}
        assert out.uncommitted == 0


def test_a_late_commit_can_be_waited_for_again(broker):
    """P13: publish and rollback are refused until commit() has handed over the outcome."""
    release = threading.Event()
    broker.publishing.scripts.append(answering_commit(fake.held(release), answer_to))
    with publisher(broker) as out:
        out.publish("a")
        with pytest.raises(errors.OutcomeUnknownError, match=r"0\.05 s; it is under way"):
            out.commit(0.05)
        for arrived in (False, True):
            if arrived:
                release.set()
                eventually("the outcome", lambda: out._stream._state.transaction.outcome)
            for refused in (lambda: out.publish("b"), out.rollback):
                with pytest.raises(errors.PreconditionFailedError, match="call commit"):
                    refused()
        assert out.commit(SOON_S).messages == 1


@pytest.mark.parametrize("commit", ["none", "late", "refused"])
@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_an_end_warns_of_what_is_not_committed(broker, recwarn, how, commit):
    """P13: what a late commit has committed is no loss, whether or not its outcome was taken."""
    out, release = publisher(broker), threading.Event()
    full = fake.detail(errors.QueueFullError("The queue is full.", queue="q"))
    answer = partial(answer_to, reason=full) if commit == "refused" else answer_to
    if commit != "none":
        broker.publishing.scripts.append(answering_commit(fake.held(release), answer))
    out.publish("a")
    if commit != "none":
        with pytest.raises(errors.OutcomeUnknownError):
            out.commit(0.05)
        release.set()
        eventually("the outcome", lambda: out._stream._state.transaction.outcome)
    if how == "closed":
        out.close()
        out.close()
        for refused in (lambda: out.publish("b"), out.commit):
            with pytest.raises(errors.ClosedError, match="closed"):
                refused()
    else:
        del out
        gc.collect()
    no_threads_are_left()
    told = [str(each.message) for each in recwarn if each.category is RuntimeWarning]
    lost = [] if commit == "late" else [f"{how} with 1 uncommitted messages"]
    assert [text in said for text, said in zip(lost, told, strict=True)] == [True] * len(lost)


def test_a_forgotten_publisher_does_not_know_the_outcome(broker):
    """P10, P13: the commit was sent, and the broker no longer knows the publisher."""
    forgotten = errors.PublisherForgottenError("This publisher is not known any more.")
    broker.publishing.scripts.extend([cut_at_commit, fake.refusing(forgotten)])
    with publisher(broker) as out:
        out.publish("a")
        with pytest.raises(errors.OutcomeUnknownError, match="not known any more") as failure:
            out.commit(SOON_S)
        assert failure.value.fields["cause"] == "publisher_forgotten"
        with pytest.raises(errors.ClosedError):
            out.publish("b")
        with pytest.raises(errors.ClosedError):
            out.commit()
        out.rollback()


def test_commit_in_a_callback_is_refused(broker):
    """Committing in a callback would wait for the thread that runs it."""
    caught = []

    def commit(_):
        caught.extend(refusals(out.commit))

    broker.publishing.scripts.append(returning)
    with publisher(broker, mandatory=True, on_return=commit) as out:
        out.publish("a")
        out.publish("b")
        out.commit(SOON_S)
    (refusal,) = caught
    assert "commit() and close() wait for the thread that runs this callback" in refusal
