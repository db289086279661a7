"""Streams of publishers and channels: outages, ends, threads, forks (P3, P10, P14, C12, C15)."""

import asyncio
import gc
import logging
import threading

import pytest

from ackq import errors, limits
from ackq.client import (
    AsyncChannel,
    AsyncPublisher,
    Channel,
    Confirmation,
    Publisher,
    TransactionalPublisher,
)
from ackq.client.connection import duplex
from ackq.client.consuming.state import ChannelState
from ackq.client.publishing.confirm_state import ConfirmState
from tests.fakes import scripted_broker as fake
from tests.fakes import scripted_channel
from tests.unit.client import threads
from tests.unit.client.consuming.scripts import ChannelOnLoop, react, serve
from tests.unit.client.publishing.scripts import PublisherOnLoop, never_answer
from tests.unit.client.threads import SOON_S, client_threads

GONE = errors.BrokerUnavailableError("The broker is shutting down.")


def publish(out):
    return out.publish(b"a", queue="orders")


def settle(it):
    return it.consume("orders", mode="client").receive(SOON_S).accept()


PUBLISHERS, CHANNELS = [Publisher, AsyncPublisher], [Channel, AsyncChannel]
# How each kind of client asks the broker for something, and the answer.
CLIENTS = {
    "publisher": (Publisher, publish, Confirmation(1)),
    "async publisher": (PublisherOnLoop, publish, Confirmation(1)),
    "channel": (Channel, settle, 1),
    "async channel": (ChannelOnLoop, settle, 1),
}


class Client:
    """Makes clients of a kind, whose broker answers their request or not.

    Attributes:
        ask: A client's request, as a function of the client; returns its future.
        answer: The broker's answer.
        asked: The broker has the request.
        ended: The stream has ended.
    """

    def __init__(self, broker, kind):
        self._broker = broker
        self._kind, self.ask, self.answer = CLIENTS[kind]
        self.asked, self.ended = threading.Event(), threading.Event()

    def make(self, *, answers=True):
        def confirm(request):
            self.asked.set()
            return fake.confirm(fake.last_number(request)) if answers else None

        def settled(request):
            self.asked.set()
            return scripted_channel.settled(request) if answers else None

        delivered = scripted_channel.numbered(1, 1)
        publishing = fake.answering(confirm, then=fake.ignore_all)
        self._broker.publishing.scripts.append(self._noted(publishing))
        consuming = react(subscribe=delivered, settle=settled)
        self._broker.consuming.scripts.append(self._noted(consuming))
        return self._kind(self._broker.endpoint)

    def _noted(self, script):
        def noted(requests):
            try:
                yield from script(requests)
            finally:
                self.ended.set()

        return noted


@pytest.fixture(params=CLIENTS)
def client(request, broker):
    """Each kind of client: the tests hold for all."""
    return Client(broker, request.param)


@pytest.mark.parametrize(
    ("kinds", "option", "value", "words"),
    [
        (PUBLISHERS, "exchange", 5, "is a int"),
        (PUBLISHERS, "mandatory", "yes", "is a str"),
        (PUBLISHERS, "persistent", "no", "is a str"),
        (PUBLISHERS, "label", b"x", "is a bytes"),
        (PUBLISHERS, "window_messages", 0, "must be positive"),
        (PUBLISHERS, "publish_ack_timeout_ms", 0, "must be positive"),
        (PUBLISHERS, "linger_ms", -1, "must not be negative"),
        ([TransactionalPublisher], "window_bytes", -1, "must be positive"),
        ([AsyncPublisher], "on_return", asyncio.sleep, "is a coroutine function"),
        ([AsyncPublisher], "on_blocked", asyncio.sleep, "is a coroutine function"),
        (CHANNELS, "reconnect_timeout_ms", -1, "is -1"),
        (CHANNELS, "on_reconnect", 7, "is a int"),
        (CHANNELS, "on_reconnect", asyncio.sleep, "is a coroutine function"),
        (CHANNELS, "window_messages", 0, "is 0"),
        (CHANNELS, "window_messages", limits.MAX_CHANNEL_WINDOW_MESSAGES + 1, "must be"),
        (CHANNELS, "transport_ack_percent", 0, "must be"),
        (CHANNELS, "transport_ack_percent", 101, "must be"),
        (CHANNELS, "transport_ack_delay_ms", -1, "must be"),
    ],
)
def test_bad_options_are_told(broker, kinds, option, value, words):
    """C17, I6, P7, P14: the error names the option that is wrong."""
    for kind in kinds:
        with pytest.raises(errors.InvalidArgumentError, match=f"'{option}' {words}"):
            kind(broker.endpoint, **{option: value})


def test_close_with_a_bound_gives_up(broker, client):
    """P10, P14, C15: close waits no longer than its timeout; a resume may come, so no `close`."""
    it = client.make(answers=False)
    future = client.ask(it)
    with pytest.raises(errors.BrokerUnavailableError, match=r"unanswered for 0\.2 s"):
        it.close(0.2)
    assert isinstance(future.exception(0), errors.OutcomeUnknownError)
    sent = [request for stream in broker.publishing.streams for request in stream]
    assert not any(each.header.HasField("close") for each in sent)
    assert client_threads() == []


def test_leaving_by_an_exception_does_not_wait(client, monkeypatch):
    """P3, C15: the exception propagates; what was sent and is unanswered is unknown."""
    monkeypatch.setattr(limits, "HEARTBEAT_SEND_MS", 100)
    futures = []

    def leave():
        with client.make(answers=False) as it:
            futures.append(client.ask(it))
            assert client.asked.wait(SOON_S)
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert isinstance(futures[0].exception(SOON_S), errors.OutcomeUnknownError)
    assert client_threads() == []


def test_a_forsaken_client_leaves_no_thread(client):
    """P3, C12: a garbage-collected client whose requests are answered ends its stream."""
    it = client.make()
    client.ask(it).result(SOON_S)
    del it
    gc.collect()
    threads.no_threads_are_left()
    assert client.ended.wait(SOON_S)


def test_a_thread_that_cannot_start_leaves_the_client_as_it_was(client, monkeypatch):
    """P3: if no thread can start, the call raises, and the next one may succeed."""
    with client.make() as it:
        with monkeypatch.context() as patched:
            threads.refuse_threads(patched, it._stream.thread_name)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                client.ask(it)
        assert client.ask(it).result(SOON_S) == client.answer


def test_a_bug_in_the_thread_is_told(client, monkeypatch):
    """P3: after an internal error every call raises, none hangs, and the stream is ended."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(ConfirmState, "on_confirm", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(ChannelState, "on_settled", lambda *_: 1 / 0)
    it = client.make()
    assert isinstance(client.ask(it).exception(SOON_S), errors.AckqError)
    assert client.ended.wait(SOON_S)
    with pytest.raises(errors.AckqError, match="ZeroDivisionError"):
        it.close()
    assert client_threads() == []


@pytest.mark.parametrize(
    ("script", "lines", "said"),
    [
        (fake.confirm_all, "out = Publisher(endpoint)\nout.publish('', queue='q').result(10)", ""),
        (
            never_answer,
            "out = Publisher(endpoint)\nout.publish('', queue='q')",
            "dropped with 1 unconfirmed messages, which may be lost",
        ),
        (None, "it = Channel(endpoint)\nit.consume('q', print)\nother = it.consume('r')", ""),
    ],
    ids=["confirmed", "unanswered", "consumers"],
)
def test_an_unclosed_client_does_not_hold_up_the_exit(broker, script, lines, said):
    """P3: a program may exit without a close; what may be lost is printed to stderr."""
    broker.publishing.scripts.append(script)
    program = f"from ackq.client import Channel, Publisher\nendpoint = {broker.endpoint!r}\n{lines}"
    done = threads.run_program(program)
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


PUBLISHER = "it = client.{kind}(endpoint, routing_key='q')\nasked(it.publish, 'a')"
PUBLISHED = "print(asked(it.publish, 'c').number)"
CONSUMER = """it = client.Channel(endpoint)
consumer = it.consume("orders", mode="client")
message = consumer.receive(10)"""
CONSUMED = "print(message.accept().result(10) + len(consumer.receive(10).body))"
# What makes and uses a client, what a fork may not call, what the parent does afterwards.
FORKED = {
    "Publisher": (PUBLISHER, ["it.publish, 'b'", "it.flush"], PUBLISHED),
    "AsyncPublisher": (PUBLISHER, ["it.publish, 'b'", "it.flush", "it.drain"], PUBLISHED),
    "Channel": (
        CONSUMER,
        [
            *("message.accept", "consumer.receive", "it.flush", "it.consume, 'x'", "it.get, 'x'"),
            *("it.acknowledge, message", "it.set_prefetch, 1", "consumer.set_prefetch, 1"),
            "getattr, it, 'unacked'",
        ],
        CONSUMED,
    ),
}
# Another thread holds the lock at the fork, as if it were publishing: the child gets it held.
FORK = """
import asyncio, os, sys, threading, warnings
from concurrent.futures import Future
from ackq import client, errors
warnings.simplefilter("error")
warnings.filterwarnings("ignore", ".*multi-threaded.*")
endpoint = {endpoint!r}
def asked(call, *given):
    answer = call(*given)
    if asyncio.iscoroutine(answer):
        return asyncio.run(answer)
    return answer.result(10) if isinstance(answer, Future) else answer
{made}
it._stream.lock.acquire()
child = os.fork()
if not child:
    def use():
        for call in [{calls}]:
            try:
                asked(*call)
            except errors.ClosedError as error:
                print(str(error).rpartition(", and ")[2])
        if hasattr(it, "consume"):
            consumer.close()
        asked(it.close)
    user = threading.Thread(target=use, daemon=True)
    user.start()
    user.join(20)
    sys.exit(user.is_alive())
it._stream.lock.release()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
{after}
asked(it.close)
"""


@pytest.mark.parametrize("kind", FORKED)
def test_a_fork_must_not_use_its_parents_client(broker, kind):
    """P10: calls in the child raise, and never hang; the parent's client goes on.

    The child's exit neither ends the parent's stream nor warns.
    """
    made, calls, after = FORKED[kind]
    broker.consuming.scripts.append(serve(scripted_channel.numbered(1, 2)))
    program = FORK.format(
        endpoint=broker.endpoint,
        made=made.format(kind=kind),
        calls=", ".join(f"({call},)" for call in calls),
        after=after,
    )
    done = threads.run_program(program)
    verb = "open" if kind == "Channel" else "make"
    refused = f"this process is a fork of it; {verb} a new one in this process.\n"
    assert done.stdout == refused * len(calls) + "2\n"


@pytest.mark.parametrize(("told_after_s", "warnings"), [(0.0, 1), (60.0, 0)])
def test_a_long_wait_is_told_once(broker, monkeypatch, caplog, told_after_s, warnings):
    """A long wait logs one warning: `ackq publish` was silent for 61 s while a broker drained."""
    monkeypatch.setattr(limits, "RETRY_INITIAL_MS", 1)
    monkeypatch.setattr(duplex, "_TOLD_AFTER_S", told_after_s)
    broker.publishing.scripts.extend([fake.refusing(GONE)] * 3)
    with caplog.at_level(logging.INFO, "ackq"), Publisher(broker.endpoint) as out:
        out.publish(b"a", queue="q")
    waits = [each for each in caplog.records if "goes on trying" in each.message]
    assert [each.levelno for each in waits].count(logging.WARNING) == warnings
    assert len(waits) == 3
    assert GONE.message in waits[0].message
    assert len(broker.publishing.streams) == 4
