"""Light futures work with everything in the standard library that takes a future."""

import asyncio
import threading
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_EXCEPTION,
    Future,
    as_completed,
    wait,
)

import pytest

from ackq import limits
from ackq.client.futures import LightFuture, wait_s
from ackq.client.publishing import confirmations
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.errors import QueueFullError
from tests.eventually import SOON_S

FULL = QueueFullError("full")


def set_result(future):
    """Gives a future of either kind a result."""
    if isinstance(future, ConfirmationFuture):
        confirmations.confirm([future], 7, {})
    else:
        future.set_result(7)


def set_exception(future):
    if isinstance(future, ConfirmationFuture):
        confirmations.fail([future], FULL)
    else:
        future.set_exception(FULL)


def result_of(future, timeout_s=0):
    """The result that `set_result` gives."""
    return getattr(result := future.result(timeout_s), "number", result)


@pytest.fixture(params=[LightFuture, ConfirmationFuture])
def kind(request):
    """Each kind of future: the tests hold for both."""
    return request.param


def test_same_attributes_as_the_standard_library(kind):
    """Detects a new attribute of `Future` in a newer Python."""
    standard = Future()
    standard.set_running_or_notify_cancel()
    ours = kind()
    for name, value in vars(standard).items():
        assert name == "_condition" or getattr(ours, name) == value


def test_result_waits_for_another_thread(kind):
    """Several threads may wait for one future."""
    future, results = kind(), []
    threads = [
        threading.Thread(target=lambda: results.append(result_of(future, SOON_S))) for _ in range(3)
    ]
    for each in threads:
        each.start()
    set_result(future)
    for each in threads:
        each.join(SOON_S)
    assert results == [7] * 3


def test_result_times_out_or_is_an_exception(kind):
    """After a timeout the future can still be done; a failure is raised."""
    late, failed = kind(), kind()
    with pytest.raises(TimeoutError):
        late.result(0.01)
    with pytest.raises(TimeoutError):
        late.exception(0)
    set_result(late)
    assert result_of(late) == 7
    set_exception(failed)
    with pytest.raises(QueueFullError, match="full"):
        failed.result(0)


class Interrupted:
    """A lock that nobody releases: Python notices Ctrl-C when the third wait for it ends."""

    def __init__(self):
        self.waits_s = []

    def acquire(self, timeout=-1):
        self.waits_s.append(timeout)
        if len(self.waits_s) > 3:
            raise KeyboardInterrupt
        return False


def test_ctrl_c_ends_a_wait_that_had_just_begun(kind, monkeypatch):
    """A wait without an end is made of short ones, at whose ends Python looks for signals."""
    lock = Interrupted()
    monkeypatch.setattr(threading, "Lock", lambda: lock)
    with pytest.raises(KeyboardInterrupt):
        kind().result()
    # The first is that of the waiting thread itself.
    assert lock.waits_s[1:] == [limits.SIGNAL_WAIT_S] * 3
    assert wait_s(0.25) == 0.25
    assert wait_s(3600.0) == limits.SIGNAL_WAIT_S
    assert wait_s(-1.0) == 0


def test_callbacks_run_once(kind):
    """A callback runs once, also if it is added late."""
    future, called = kind(), []
    future.add_done_callback(called.append)
    set_result(future)
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_cancel_is_refused(kind):
    """A publish that was accepted cannot be cancelled."""
    future = kind()
    assert not future.cancel()
    assert future.running()
    set_result(future)
    assert not future.cancelled()
    assert future.done()
    assert "finished" in repr(future)


def test_wait_and_as_completed(kind):
    """`concurrent.futures` waits for futures of each kind, with its own among them."""
    futures = [kind() for _ in range(4)]
    setter = threading.Thread(target=lambda: [set_result(each) for each in futures])
    setter.start()
    assert {result_of(each) for each in as_completed([*futures, *futures], SOON_S)} == {7}
    setter.join(SOON_S)
    assert wait([*futures, Future()], 0.01, ALL_COMPLETED).done == set(futures)
    failing = [kind(), kind()]
    threading.Thread(target=set_exception, args=failing[:1]).start()
    assert wait(failing, SOON_S, FIRST_EXCEPTION).done == {failing[0]}


def test_asyncio_awaits_it(kind):
    """An event loop may await the future of another thread."""
    future = kind()

    async def wait_for_it():
        threading.Thread(target=set_result, args=(future,)).start()
        await asyncio.wrap_future(future)
        return result_of(future)

    assert asyncio.run(wait_for_it()) == 7
