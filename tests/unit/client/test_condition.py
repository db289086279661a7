"""Conditions of the client's streams."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from ackq.client.condition import StreamCondition


def interrupted(step, work, events=("c_return",)):
    """Does `work`, with a KeyboardInterrupt at its event number `step`; whether it came."""
    calls = 0

    def interrupt(_frame, event, _function):
        nonlocal calls
        calls += event in events
        if event in events and calls == step:
            raise KeyboardInterrupt

    try:
        sys.setprofile(interrupt)
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_ctrl_c_after_any_call_leaves_the_lock_free():
    """C12: a wait that Ctrl-C interrupts after any of its calls raises it, and frees the lock."""
    lock = threading.RLock()
    condition = StreamCondition(lock)

    def wait():
        with lock:
            condition.wait(0)

    def take():
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as another:
        for step in count(1):
            came = interrupted(step, wait)
            assert another.submit(take).result(), f"held after call {step}"
            if not came:
                break
    assert step > 5
