"""Close, callbacks, threads and forks of a publisher: every publish gets its answer (P3, P10)."""

import gc
import logging
import sys
import threading

import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import Confirmation
from ackq.v1 import publishing_pb2
from ackq.wire import block
from tests.fakes import scripted_broker as fake
from tests.unit.client.publishing.scripts import KINDS, LINGER_MS, never_answer, publisher
from tests.unit.client.threads import SOON_S, client_threads, run_program


@pytest.fixture(params=KINDS)
def kind(request):
    """Each kind of publisher: the tests hold for both."""
    return KINDS[request.param]


def test_callbacks_may_publish(broker):
    """P14: a publish from a callback does not wait for the thread that runs the callback."""
    with publisher(broker, window_messages=1) as out:
        replies = []
        out.publish(b"a").add_done_callback(lambda _: replies.append(out.publish(b"reply")))
        out.flush(SOON_S)
        assert [each.result(SOON_S) for each in replies] == [Confirmation(2)]


def test_flush_in_a_callback_is_refused(broker):
    """Flushing in a callback would wait for the thread that runs it."""
    caught = []

    def flush(_):
        try:
            out.flush()
        except errors.PreconditionFailedError as error:
            caught.append(error)

    with publisher(broker) as out:
        out.publish(b"a").add_done_callback(flush)
    assert len(caught) == 1


@pytest.mark.parametrize("old", [False, True], ids=["known", "unknown to the broker"])
def test_close_says_that_every_answer_was_read(broker, old):
    """P10: `close` is sent after the last confirm; an older broker's refusal is ignored."""
    confirmed = threading.Event()

    def script(requests):
        for request in requests:
            kind = request.header.WhichOneof("kind")
            if kind == "open":
                yield fake.opened()
            elif kind == "data":
                assert not confirmed.wait(0.2)
                confirmed.set()
                yield fake.confirm(fake.last_number(request))
            elif old:
                raise errors.InvalidArgumentError("opened once")

    broker.publishing.scripts.append(script)
    out = publisher(broker)
    future = out.publish(b"a")
    out.close()
    out.close()
    assert future.result(0) == Confirmation(1)
    with pytest.raises(errors.ClosedError, match="is closed"):
        out.publish(b"b")
    (requests,) = broker.publishing.streams
    assert [each.header.WhichOneof("kind") for each in requests] == ["open", "data", "close"]
    assert client_threads() == []


def test_close_with_a_bound_gives_up(broker, kind):
    """P10, P14: close waits no longer than its timeout, and sends no `close`: a resume may come."""
    broker.publishing.scripts.append(never_answer)
    out = publisher(broker, kind=kind)
    future = out.publish(b"a")
    with pytest.raises(errors.BrokerUnavailableError, match=r"1 publishes unanswered for 0\.2 s"):
        out.close(0.2)
    assert isinstance(future.exception(0), errors.OutcomeUnknownError)
    (requests,) = broker.publishing.streams
    assert not any(each.header.HasField("close") for each in requests)
    assert client_threads() == []


def test_leaving_by_an_exception_does_not_wait(broker, kind):
    """P3: a publish that was sent and is unanswered fails with an unknown outcome."""
    silent = threading.Event()
    script = fake.answering(lambda _: silent.set(), then=fake.ignore_all)
    broker.publishing.scripts.append(script)
    futures = []

    def leave():
        with publisher(broker, kind=kind) as out:
            futures.append(out.publish(b"a"))
            assert silent.wait(SOON_S)
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert isinstance(futures[0].exception(), errors.OutcomeUnknownError)
    assert client_threads() == []


def test_close_in_an_outage_names_its_cause(broker):
    """P14: the error names the connection failure, not a broker under load."""
    broker.close()
    out = publisher(broker)
    out.publish(b"a")
    with out._stream._changed:
        assert out._stream._changed.wait_for(lambda: out._stream._outage, SOON_S)
    with pytest.raises(errors.BrokerUnavailableError, match="1 publishes had no answer") as late:
        out.close(0.2)
    assert "Connection refused" in late.value.fields["cause"]
    assert "Check the address and that the broker runs" in late.value.message
    assert client_threads() == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (fake.confirm_all, ""),
        (never_answer, "dropped with 1 unconfirmed messages, which may be lost"),
    ],
    ids=["confirmed", "unanswered"],
)
def test_unclosed_publisher_does_not_hold_up_the_exit(broker, script, said):
    """P3: a program may exit without a close; what may be lost is printed to stderr."""
    broker.publishing.scripts.append(script)
    done = run_program(f"""
        from ackq.client import Publisher
        publisher = Publisher({broker.endpoint!r}, routing_key="q")
        future = publisher.publish(b"a")
        if not {said!r}:
            future.result(10)
    """)
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


def test_fork_must_not_use_its_parents_publisher(broker):
    """P10: another process may not use a publisher id; calls in the child raise, never hang.

    The parent's publisher goes on; the child's exit neither ends its stream nor warns.
    """
    done = run_program(f"""
        import os, sys, warnings
        from ackq import errors
        from ackq.client import Publisher

        warnings.simplefilter("error")
        publisher = Publisher({broker.endpoint!r}, routing_key="q")
        publisher.publish(b"a").result(10)
        # As if another thread were publishing at that moment: the child gets a lock nobody frees.
        publisher._stream._changed.acquire()
        child = os.fork()
        if not child:
            import threading
            def use():
                for each in (lambda: publisher.publish(b"b"), publisher.flush):
                    try:
                        each()
                    except errors.ClosedError as error:
                        print(str(error).rpartition(", and ")[2])
                publisher.close()
            user = threading.Thread(target=use, daemon=True)
            user.start()
            user.join(20)
            sys.exit(user.is_alive())
        publisher._stream._changed.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(publisher.publish(b"c").result(10).number)
        publisher.close()
    """)
    refused = "this process is a fork of it; make a new one in this process.\n"
    assert done.stdout == f"{refused}{refused}2\n"


def exit_on_return(returned):
    raise SystemExit(str(returned.numbers))


def test_callback_that_exits_stops_nothing(broker, caplog):
    """P3: `sys.exit()` in a callback stops neither the publisher nor other callbacks."""
    batch = pa.record_batch({"body": pa.array([b"m0"], pa.binary())})
    returned = fake.returned(1, block=block.encode(batch))
    broker.publishing.scripts.append(fake.answering(returned, fake.confirm(3)))
    with publisher(broker, on_return=exit_on_return, linger_ms=LINGER_MS) as out:
        futures = [out.publish(f"m{i}") for i in range(3)]
        futures[0].add_done_callback(lambda _: sys.exit(3))
        out.flush(SOON_S)
        assert [each.result(0).number for each in futures] == [1, 2, 3]
        later = out.publish(b"d")
        out.flush(SOON_S)
        assert later.result(0).number == 4
    raised = [each.exc_info[1] for each in caplog.records if each.levelno == logging.ERROR]
    assert [str(each) for each in raised] == ["(1,)", "3"]


def test_bug_in_the_receiving_thread_ends_the_stream(broker, monkeypatch):
    """P3: after an internal error every publish fails and the stream is ended."""
    ended = threading.Event()

    def script(requests):
        try:
            yield fake.opened()
            yield fake.answer(unblocked=publishing_pb2.PublishUnblocked())
            for _ in requests:
                pass
        finally:  # also when the stream ends at a yield
            ended.set()

    def break_down(*_):
        raise ZeroDivisionError

    broker.publishing.scripts.append(script)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(
        "ackq.client.publishing.confirm_state.ConfirmState.on_unblocked", break_down
    )
    out = publisher(broker)
    assert isinstance(out.publish(b"a").exception(SOON_S), errors.AckqError)
    assert ended.wait(SOON_S)
    with pytest.raises(errors.AckqError, match="ZeroDivisionError"):
        out.close()
    assert client_threads() == []


def test_publish_that_finds_no_thread_is_not_taken(broker, monkeypatch):
    """P3: if no thread can start, `publish` raises, and the next publish may succeed."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with publisher(broker) as out:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                out.publish(b"a")
        assert out.unconfirmed == 0
        assert out.publish(b"b").result(SOON_S) == Confirmation(1)


@pytest.mark.parametrize("batch", [False, True])
def test_a_publish_in_one_line_is_confirmed(broker, batch):
    """P3: an unreferenced publisher goes on until its publishes are answered."""
    confirmed = threading.Event()

    def script(requests):
        for request in requests:
            if request.header.WhichOneof("kind") == "open":
                yield fake.opened()
            else:
                assert confirmed.wait(SOON_S)
                yield fake.confirm(fake.last_number(request))

    broker.publishing.scripts.append(script)
    if batch:
        future = publisher(broker).publish_batch(pa.record_batch({"body": [b"a", b"b"]}))
    else:
        future = publisher(broker).publish(b"a")
    gc.collect()
    confirmed.set()
    assert future.result(SOON_S) == (2 if batch else Confirmation(1))
    for thread in client_threads():
        thread.join(SOON_S)
    assert client_threads() == []


def test_forsaken_publisher_leaves_no_thread(broker):
    """A garbage-collected publisher without unanswered publishes ends its stream."""
    out = publisher(broker)
    out.publish(b"a").result(SOON_S)
    del out
    gc.collect()
    for thread in client_threads():
        thread.join(SOON_S)
    assert client_threads() == []
