"""A broker in a thread of the test's process, so that the test can patch its limits."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager

from ackq_broker import server
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.service.transport.listening import address

_START_S = 60


@contextmanager
def broker_here(folder):
    """Runs a broker without syncs until the block ends; yields its endpoint."""
    loop, stop, serving = asyncio.new_event_loop(), asyncio.Event(), Future()
    options = server.Options(
        folder / "data", (address("127.0.0.1:0"),), sync=False, failpoint=unarmed
    )
    serve = server.serve(options, stop, serving.set_result)
    thread = threading.Thread(target=loop.run_until_complete, args=(serve,))
    thread.start()
    try:
        yield f"127.0.0.1:{serving.result(_START_S).port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_START_S)
        loop.close()
