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

from ackq.client.futures import LightFuture
from tests.eventually import SOON_S


def test_same_attributes_as_the_standard_library():
    """Detects a new attribute of `Future` in a newer Python."""
    standard_future = Future()
    standard_future.set_running_or_notify_cancel()
    ours = LightFuture()
    for name, value in vars(standard_future).items():
        assert name == "_condition" or getattr(ours, name) == value


def test_result_waits_for_another_thread():
    future = LightFuture()
    waiting = threading.Event()
    results = []

    def wait_for_it():
        waiting.set()
        results.append(future.result(SOON_S))

    threads = [threading.Thread(target=wait_for_it) for _ in range(3)]
    for each in threads:
        each.start()
    assert waiting.wait(SOON_S)
    future.set_result(7)
    for each in threads:
        each.join(SOON_S)
    assert results == [7, 7, 7]


def test_result_times_out():
    with pytest.raises(TimeoutError):
        LightFuture().result(0.01)


def test_exception_is_raised():
    future = LightFuture()
    future.set_exception(KeyError("k"))
    with pytest.raises(KeyError):
        future.result(0)


def test_callbacks_run_once():
    future = LightFuture()
    called = []
    future.add_done_callback(called.append)
    future.set_result(None)
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_cancel_is_refused():
    """A publish that was accepted cannot be cancelled."""
    future = LightFuture()
    assert not future.cancel()
    assert not future.cancelled()
    future.set_result(1)
    assert future.result(0) == 1


def test_wait_and_as_completed():
    futures = [LightFuture() for _ in range(4)] + [Future()]
    setter = threading.Thread(
        target=lambda: [each.set_result(at) for at, each in enumerate(futures)]
    )
    setter.start()
    assert sorted(each.result() for each in as_completed(futures, SOON_S)) == [0, 1, 2, 3, 4]
    setter.join(SOON_S)
    assert wait(futures, SOON_S, ALL_COMPLETED).not_done == set()
    assert wait([LightFuture()], 0.01, FIRST_EXCEPTION).done == set()


def test_asyncio_awaits_it():
    future = LightFuture()

    async def wait_for_it():
        threading.Thread(target=future.set_result, args=(5,)).start()
        return await asyncio.wrap_future(future)

    assert asyncio.run(wait_for_it()) == 5
