"""A duplex stream with a state machine of one request: reconnect, end, abandon, silence."""

import logging
import threading

import pytest

from ackq import errors, limits
from ackq.client.connection import calls, duplex
from ackq.client.connection.broker import Broker
from ackq.client.connection.duplex import DuplexStream, Finish, Lost, Send, Wait
from ackq.v1 import sessions_pb2 as pb
from tests.eventually import SOON_S

GONE = errors.BrokerUnavailableError("The broker is shutting down.")


class OneRequest:
    """A state that sends one request on each call, and is done when it is answered."""

    def __init__(self):
        self.done = False
        self.lost = False
        self.sent = False

    def next_action(self, _now):
        if self.done:
            return Finish()
        if self.lost:
            return Lost()
        if self.sent:
            return Wait(None)
        self.sent = True
        return Send(pb.HoldRequest(session="s"))


class Stream(DuplexStream):
    name = "question"
    thread_name = "ackq-question"

    def __init__(self, endpoint, retry_total_ms=60_000):
        super().__init__(Broker(endpoint, retry_ms=retry_total_ms), OneRequest())
        self.ends = []
        self.connected = threading.Event()
        with self.lock:
            self._start()

    def lose(self):
        with self.lock:
            self._state.lost = True
            self._changed.notify_all()

    def _connect(self, channel, call_number):
        return calls.hold(channel, self._requests(call_number))

    def _on_answer(self, answer):
        with self.lock:
            self._state.done = answer.heartbeat_ms == 1
            self._changed.notify_all()
        self.connected.set()

    def _on_disconnect(self):
        with self.lock:
            self._state.sent = self._state.lost = False

    def _on_end(self, error):
        self.ends.append(error)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(limits, "RETRY_INITIAL_MS", 1)


def fail(error):
    def script(requests):
        next(requests)
        raise error
        yield

    return script


def answer(requests):
    for _ in requests:
        yield pb.HoldResponse(heartbeat_ms=1)


def stay_open(requests):
    for _ in requests:
        yield pb.HoldResponse(heartbeat_ms=2)


def test_the_request_is_repeated_until_it_is_answered(broker):
    """Each disconnect leads to another call, and a finished state ends without an error."""
    broker.sessions.holds.extend([fail(GONE), fail(GONE), answer])
    stream = Stream(broker.endpoint)
    stream._thread.join(SOON_S)
    stream.join()
    assert stream.ends == [None]
    assert len(broker.sessions.hold_requests) == 3


@pytest.mark.parametrize(("told_after_s", "warnings"), [(0.0, 1), (60.0, 0)])
def test_a_long_wait_is_told_once(broker, monkeypatch, caplog, told_after_s, warnings):
    """A long wait logs one warning: `ackq publish` was silent for 61 s while a broker drained."""
    monkeypatch.setattr(duplex, "_TOLD_AFTER_S", told_after_s)
    broker.sessions.holds.extend([fail(GONE), fail(GONE), fail(GONE), answer])
    with caplog.at_level(logging.INFO, "ackq"):
        stream = Stream(broker.endpoint)
        stream._thread.join(SOON_S)
    waits = [each for each in caplog.records if "goes on trying" in each.message]
    assert [each.levelno for each in waits].count(logging.WARNING) == warnings
    assert len(waits) == 3
    assert GONE.message in waits[0].message


def test_a_final_error_ends_it(broker):
    """An error that a retry cannot change ends the stream at once."""
    broker.sessions.holds.append(fail(errors.FencedError("Held by host b.")))
    stream = Stream(broker.endpoint)
    stream._thread.join(SOON_S)
    assert [type(each) for each in stream.ends] == [errors.FencedError]
    assert len(broker.sessions.hold_requests) == 1


def test_it_gives_up_within_its_bound():
    """After its retry bound the stream ends with the error's cause and the time tried."""
    stream = Stream("127.0.0.1:1", retry_total_ms=50)
    stream._thread.join(SOON_S)
    (error,) = stream.ends
    assert isinstance(error, errors.BrokerUnavailableError)
    assert "could not be reached for 0.05 s" in error.message


def test_abandoning_ends_a_call_that_waits(broker):
    """Abandoning a stream ends its thread and its call."""
    broker.sessions.holds.append(stay_open)
    stream = Stream(broker.endpoint)
    assert stream.connected.wait(SOON_S)
    stream.abandon()
    stream.join()
    assert stream.ends == [None]
    assert [each for each in threading.enumerate() if each.name == "ackq-question"] == []


def test_a_silent_broker_is_called_again(broker):
    """A state that finds the broker silent drops the call and makes another."""
    broker.sessions.holds.extend([stay_open, answer])
    stream = Stream(broker.endpoint)
    assert stream.connected.wait(SOON_S)
    stream.lose()
    stream._thread.join(SOON_S)
    assert stream.ends == [None]
    assert len(broker.sessions.hold_requests) == 2


def test_a_bad_address_is_refused_where_it_is_given():
    with pytest.raises(errors.InvalidArgumentError, match="has no port"):
        Stream("localhost")
