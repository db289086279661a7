"""Runs a consumer's callback, one message after another, on a thread of its own (C10).

Invariant: an exception of a callback is logged once and does not stop the consumer; the message is
settled by the rule of the mode unless the callback settled it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from copy import copy

from ackq.client.condition import StreamCondition
from ackq.client.consuming.message import Message
from ackq.client.consuming.receiver import Receiver
from ackq.client.consuming.stream import Handover
from ackq.client.futures import wait_s
from ackq.client.outcomes import AcknowledgeMode, When
from ackq.errors import AckqError
from ackq.outcomes import RELEASE, Disposition, Outcome

_log = logging.getLogger(__name__)

Callback = Callable[[Message], object]

# Maximum length of the reason: enough of the exception to understand the dead letter.
_REASON_CHARACTERS = 500
# Modes that settle the message of a callback that raised: FAILED if declared, else RELEASED (C10).
_AUTOMATIC = (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)


def settle_returned(receiver: Receiver, message: Message) -> None:
    """Accepts the message of a callback that returned, as the mode requires (C10)."""
    settler = receiver.settler
    if receiver.after_callback is When.NOT:
        return
    with settler.stream.lock:
        if settler.has(message.delivery_tag):
            settler.stream.accept(message.delivery_tag, receiver.after_callback)


def settle_raised(receiver: Receiver, message: Message, error: BaseException) -> None:
    """Logs the exception of a callback and settles its message as the mode requires (C10)."""
    settler = receiver.settler
    _log.error(
        "The callback of a consumer of queue '%s' raised an exception for message %d",
        receiver.inbox.request.queue,
        message.delivery_tag,
        exc_info=error,
    )
    if settler.mode not in _AUTOMATIC:
        return
    with settler.stream.lock:
        if settler.has(message.delivery_tag):
            failed = Outcome.FAILED in settler.outcomes
            disposition = Disposition(Outcome.FAILED, _reason(error)) if failed else RELEASE
            settler.stream.settle_one(message.delivery_tag, disposition, None, visible=False)


class CallbackThread:
    """The thread that runs a consumer's callback.

    Args:
        receiver: The consumer's receiver.
        callback: The application's callback.
        arrived: Notified when the receiver's inbox changed; shares the stream's lock.
    """

    def __init__(self, receiver: Receiver, callback: Callback, arrived: StreamCondition) -> None:
        self._receiver = receiver
        self._callback = callback
        self._arrived = arrived
        self._error: AckqError | None = None
        self._thread = threading.Thread(target=self._run, name="ackq-consumer", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end of the thread; False: timed out."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self.alive and (until is None or time.monotonic() < until):
            self._thread.join(wait_s(until and until - time.monotonic()))
        return not self.alive

    def join(self, timeout_s: float | None) -> bool:
        """Waits for the end of the thread; False: timed out.

        Raises:
            AckqError: Why the consumer ended, unless the application closed it.
        """
        if not self.wait(timeout_s):
            return False
        if self._error is not None:
            raise copy(self._error)
        return True

    def _run(self) -> None:
        try:
            while True:
                self._handle(self._next())
        except AckqError as error:
            if not self._receiver.ended:
                self._error = error
                _log.warning(
                    "The consumer of queue '%s' has ended: %s",
                    self._receiver.inbox.request.queue,
                    error,
                )

    def _next(self) -> Message:
        """Waits for the next message; raises why none will arrive."""
        message = self._receiver.next_message(callback=True)
        while message is None:
            with self._arrived.lock:
                while (given := self._receiver.poll_for_callback()) is None:
                    self._arrived.wait()
            if self._is_accepted(given):
                message = self._receiver.message(given.taken)
        return message

    def _is_accepted(self, given: Handover) -> bool:
        """Waits for the accept of a message if the mode requires it; False: do not deliver it."""
        if given.accepted is not None:
            try:
                given.accepted.result()
            except AckqError as error:
                return self._receiver.deliverable(error, callback=True)
        return True

    def _handle(self, message: Message) -> None:
        try:
            self._callback(message)
        except BaseException as error:  # noqa: BLE001 - what an application raises is its own
            settle_raised(self._receiver, message, error)
        else:
            settle_returned(self._receiver, message)


def _reason(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
    return text.encode(errors="replace").decode()
