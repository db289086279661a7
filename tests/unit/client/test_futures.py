"""Light futures work with everything in the standard library that takes a future."""

import asyncio
import threading
from concurrent import futures as standard
from concurrent.futures import Future, ThreadPoolExecutor, wait
from unittest.mock import Mock, call

import pytest

from ackq import limits
from ackq.client import futures
from ackq.client.futures import LightFuture, wait_s
from ackq.client.publishing import confirmations
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.errors import QueueFullError
from tests.eventually import SOON_S
from tests.libraries import replace

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
    theirs = Future()
    theirs.set_running_or_notify_cancel()
    ours = kind()
    for name, value in vars(theirs).items():
        assert name == "_condition" or getattr(ours, name) == value


def test_result_waits_for_another_thread(kind):
    """Several threads may wait for one future; after a timeout it can still be done."""
    future = kind()
    with pytest.raises(TimeoutError):
        future.result(0.01)
    with pytest.raises(TimeoutError):
        future.exception(0)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(result_of, future, SOON_S) for _ in range(3)]
        set_result(future)
    assert [each.result() for each in waiting] == [7] * 3


def test_ctrl_c_ends_a_wait_that_had_just_begun(kind, monkeypatch):
    """A wait without an end is made of short ones, at whose ends Python looks for signals."""
    lock = Mock()  # that nobody releases: Python notices Ctrl-C when the third wait for it ends
    lock.acquire.side_effect = [False] * 3 + [KeyboardInterrupt]
    replace(monkeypatch, futures, threading, Lock=lambda: lock)
    with pytest.raises(KeyboardInterrupt):
        kind().result()
    # The first is that of the waiting thread itself.
    assert lock.acquire.mock_calls[1:] == [call(timeout=limits.SIGNAL_WAIT_S)] * 3
    assert wait_s(0.25) == 0.25
    assert wait_s(3600.0) == limits.SIGNAL_WAIT_S
    assert wait_s(-1.0) == 0


def test_callbacks_run_once_and_cancel_is_refused(kind):
    """A callback runs once, also if it is added late; what was accepted cannot be cancelled."""
    future, called = kind(), []
    future.add_done_callback(called.append)
    assert not future.cancel()
    assert future.running()
    set_result(future)
    future.add_done_callback(called.append)
    assert called == [future, future]
    assert not future.cancelled()
    assert future.done()
    assert "finished" in repr(future)


def test_wait_and_as_completed(kind):
    """`concurrent.futures` waits for futures of each kind, with its own among them."""
    futures = [kind() for _ in range(4)]
    setter = threading.Thread(target=lambda: [set_result(each) for each in futures])
    setter.start()
    assert {result_of(each) for each in standard.as_completed([*futures, *futures], SOON_S)} == {7}
    setter.join(SOON_S)
    assert wait([*futures, Future()], 0.01, standard.ALL_COMPLETED).done == set(futures)
    failing = [kind(), kind()]
    threading.Thread(target=set_exception, args=failing[:1]).start()
    assert wait(failing, SOON_S, standard.FIRST_EXCEPTION).done == {failing[0]}


async def test_asyncio_awaits_it(kind):
    """An event loop may await the future of another thread."""
    future = kind()
    threading.Thread(target=set_result, args=(future,)).start()
    await asyncio.wrap_future(future)
    assert result_of(future) == 7


def test_two_threads_wait_for_the_same_futures_in_any_order():
    """`wait` locks all its futures at once; opposite orders do not deadlock."""
    some = [ConfirmationFuture() for _ in range(100)]
    threads = [
        threading.Thread(target=wait, args=(each, SOON_S), daemon=True)
        for each in (some, some[::-1], some[::2], some[1::2]) * 5
    ]
    for each in threads:
        each.start()
    threading.Timer(0.05, confirmations.confirm, (some, 1, {})).start()
    for each in threads:
        each.join(SOON_S)
    assert not any(each.is_alive() for each in threads)
