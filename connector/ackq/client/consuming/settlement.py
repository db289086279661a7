"""What an application learns of a settlement (C15), from a thread or from an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from typing import Any

from ackq.client.futures import LightFuture
from ackq.errors import AckqError

_log = logging.getLogger(__name__)

# A future logs an `Exception` of its callbacks itself; what is none, for instance `sys.exit()`,
# would end the thread that tells it.
_RAISED = "A callback of a settlement's future raised"


class Settlement(LightFuture[int]):
    """A future with the number of messages that were settled; in a coroutine, `await` it.

    It fails with what ended the channel: nothing was settled, the messages are delivered again. Or
    with OutcomeUnknownError: they are delivered again unless the settlement took effect. Its
    callbacks run on the channel's thread: they may settle and publish, and must not block.
    """

    def __await__(self) -> Generator[Any, None, int]:
        return asyncio.wrap_future(self).__await__()

    def succeed(self, messages: int) -> None:
        """The settlement took effect."""
        try:
            self.set_result(messages)
        except BaseException:  # noqa: BLE001 - see _RAISED
            _log.exception(_RAISED)

    def fail(self, error: AckqError) -> None:
        """It did not, or nobody knows."""
        try:
            self.set_exception(error)
        except BaseException:  # noqa: BLE001 - see _RAISED
            _log.exception(_RAISED)
