"""Base of the state machines of both publish modes: the window, and the stream's state.

Invariant: admitted messages never exceed the window, except that one message is always admitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ackq.client.connection.duplex import Finish
from ackq.client.publishing.requests import Action, Close
from ackq.errors import InvalidArgumentError


class Window:
    """Messages and bytes that a publisher has accepted and not yet released, with limits (P14).

    Raises:
        InvalidArgumentError: A bound is not positive.
    """

    def __init__(self, messages: int, size: int) -> None:
        # The errors name the publisher's arguments.
        for name, value in (("window_messages", messages), ("window_bytes", size)):
            if value <= 0:
                raise InvalidArgumentError(f"'{name}' must be positive.", argument=name)
        self._max_messages = messages
        self._max_bytes = size
        self.messages = 0
        self.bytes = 0

    def admits(self, messages: int, size: int) -> bool:
        """Whether the window has room for messages of this count and size.

        An empty window admits any, or a large message could never be sent.
        """
        return not self.messages or (
            self.messages + messages <= self._max_messages and self.bytes + size <= self._max_bytes
        )

    def take(self, messages: int, size: int) -> None:
        """Takes room for messages in the window."""
        self.messages += messages
        self.bytes += size

    def give_back(self, messages: int, size: int) -> None:
        """Frees the room of messages in the window."""
        self.messages -= messages
        self.bytes -= size
        assert self.messages >= 0 <= self.bytes, "a message leaves the window once"


class PublishState(ABC):
    """The state machine of one publisher; no I/O, no clock, no lock (its stream has those).

    Attributes:
        window: Backpressure on the application (P14).
        opened: The stream is open.
        blocked: Why the broker blocks publishers; None when it does not (P14).
        finishing: New publishes are refused; half-close once all are answered.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.opened = False
        self.blocked: str | None = None
        self.finishing = False
        self._close_sent = False

    @property
    @abstractmethod
    def pending(self) -> int:
        """Number of messages whose result the application does not know yet."""

    @property
    @abstractmethod
    def lowest_unanswered(self) -> int:
        """The lowest publish number without an answer, for an open (P10)."""

    @property
    def next_number(self) -> int:
        """The lowest unused publish number, for an open (P10)."""
        return self.lowest_unanswered

    @property
    @abstractmethod
    def window_messages(self) -> int:
        """The window, in messages, that an open announces (P11)."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether the publisher has nothing to send and no answer to wait for."""

    @property
    def done(self) -> bool:
        """Whether the publisher is idle and nothing will follow."""
        return self.finishing and self.idle

    @abstractmethod
    def next_action(self, now: float) -> Action:
        """The next action of the sending thread."""

    @abstractmethod
    def close_draft(self) -> None:
        """Queues the draft, if any, to be sent."""

    def last_action(self) -> Action:
        """The last actions of a `done` state: a close, then the half-close (P10)."""
        if self.opened and not self._close_sent:
            self._close_sent = True
            return Close(self.lowest_unanswered)
        return Finish()

    def on_opened(self) -> None:
        """Lets publishes be sent: the stream is open."""
        self.opened = True

    def on_blocked(self, reason: str) -> None:
        """Holds publishes back: the broker takes none (P14)."""
        self.blocked = reason

    def on_unblocked(self) -> None:
        """Lets publishes be sent again (P14)."""
        self.blocked = None

    def on_disconnect(self) -> None:
        """Prepares for the next stream: unanswered publishes are sent again, or lost."""
        self.opened = False
        self.blocked = None
