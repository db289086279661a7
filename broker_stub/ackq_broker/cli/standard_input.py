"""The end of standard input, by which a command ends with the process that started it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading


def set_at_eof(stop: asyncio.Event) -> None:
    """Sets an event of the running loop when standard input ends."""
    loop = asyncio.get_running_loop()

    def wait_for_eof() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait_for_eof, name="stdin", daemon=True).start()
