"""Publishes to a JetStream stream: an answer is the confirm. Rules L22 and L23.

Invariant: a row counts as confirmed only if the stream has answered with its sequence.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ackq.errors import InvalidArgumentError
from ackq.limits import LINK_ANSWER_S
from ackq_link.adapter import CutError, Limits, PublishedRows, message_ids
from ackq_link.jetstream.address import NatsAddress, api_error, json_object
from ackq_link.jetstream.connection import NatsConnection, Received
from ackq_link.jetstream.messages import from_rows, subject_flaw, subjects, takes
from ackq_link.process import log

_NS: Final = 1_000_000_000
_END: Final = b"\r\n"  # of a block of headers
_NO_WINDOW: Final = (
    "the stream '{place}' has no duplicate window: a cut doubles at most the messages in flight."
    " Give it one: nats stream edit {place} --dupe-window=2m"
)
_OUTLASTED: Final = (
    "{rows} messages had no answer {away:.0f} s ago, and the stream '{place}' remembers ids for"
    " {window:.0f} s: what it had taken is doubled"
)
_BLIND: Final = (
    "{who} may not publish to '{call}': of two different messages with one id the second is lost"
    " within the duplicate window"
)
_ANOTHER: Final = "the stream has another message with this id; it takes this one after {:.0f} s"
_ELSEWHERE: Final = "the subject is of stream '{}'"
_NO_STREAM: Final = "'{}' is answered by another subscriber"
_SILENT: Final = (
    "'{}' has a subscriber that did not answer for {:.0f} s, and is none of the stream's"
)
# Answers by which the stream can never take a message.
_NEVER: Final = ("maximum message size", "max payload", "message size exceeds", "header size")
# A server without an answer for this long is blocked: it gives no reason.
_SILENT_S: Final = 10.0
_LOOK_S: Final = 5.0
# The answer to a look at a message that was taken from the stream already.
_TAKEN: Final = "no message found"


@dataclass
class Doubts:
    """The rows without an answer at the last cut, and the time of their first publish."""

    rows: int = 0
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """The stream that a link publishes to.

    Args:
        address: The server.
        place: The stream.
        subject: The subject of all rows; empty: each row's routing key.
        name: The link's name.
        limits: The bounds on rows in flight.
    """

    address: NatsAddress
    place: str
    subject: str
    name: str
    limits: Limits
    doubts: Doubts = field(default_factory=Doubts, compare=False)

    @property
    def identity(self) -> str:
        """The URL and the stream, without credentials."""
        return f"{self.address.url}, stream {self.place}"

    async def connect(self) -> StreamProducer:
        """Connects; checks the stream, its duplicate window and the subject. Raises CutError."""
        connection = NatsConnection(self.address, self.place)
        await connection.open(self.name)
        try:
            found = await connection.ask(f"STREAM.INFO.{self.place}", config=dict)
            window_s = found["config"].get("duplicate_window", 0) / _NS
            own = tuple(found["config"].get("subjects") or ())
            flaw = subject_flaw(self.subject, own) if self.subject else ""
            if flaw:
                error = InvalidArgumentError(f"The link's routing-key cannot be used: {flaw}.")
                raise CutError(error.message, error)  # noqa: TRY301 - one way out
            self._warn(window_s)
            transforms = bool(found["config"].get("subject_transform"))
            producer = StreamProducer(self, connection, window_s, own, transforms=transforms)
            await producer.start()
        except BaseException:
            await connection.close()
            raise
        return producer

    def _warn(self, window_s: float) -> None:
        """Warns where the stream does not make a repetition one message (L23)."""
        away_s = time.monotonic() - self.doubts.since_s
        told = "" if window_s else _NO_WINDOW.format(place=self.place)
        if window_s:
            text = f"each message is once in the stream while no cut outlasts {window_s:.0f} s"
            log(logging.INFO, self.name, "duplicate_window", text, window_s=window_s)
        if window_s and self.doubts.rows and away_s > window_s:
            told = _OUTLASTED.format(
                rows=self.doubts.rows, away=away_s, place=self.place, window=window_s
            )
        if told:
            log(logging.WARNING, self.name, "duplicates", told)


@dataclass(slots=True)
class _Sending:
    """Rows that were published together, and their answers so far."""

    frames: dict[int, tuple[str, bytes, bytes]]
    done: asyncio.Future[None]
    sent_s: float
    confirmed: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    unfit: dict[int, str] = field(default_factory=dict)

    def answered(self, row: int) -> None:
        """Notes the last step of a row."""
        del self.frames[row]
        if not self.frames and not self.done.done():
            self.done.set_result(None)


class StreamProducer:
    """Publishes on one connection; each row has an inbox of its own for its answer."""

    def __init__(
        self,
        target: StreamTarget,
        connection: NatsConnection,
        window_s: float,
        own: Sequence[str] = (),
        *,
        transforms: bool = False,
    ) -> None:
        self._target = target
        self._own = own  # the stream's subjects
        # With this header another stream refuses the message, and stores nothing.
        self._expected = f"Nats-Expected-Stream: {target.place}\r\n".encode()
        self._transforms = transforms  # it stores messages under other subjects
        self._connection = connection
        self._window_s = window_s
        self._inbox = connection.new_inbox()
        self._sendings: dict[int, _Sending] = {}
        self._number = 0
        # When the oldest batch became that, or got its last answer: the stream answers in order.
        self._heard_s = 0.0
        self._cut: CutError | None = None
        self._watcher: asyncio.TimerHandle | None = None
        self._overdue = False
        self._blind = False  # the user may not look at messages
        self._looks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listens for answers. Raises CutError."""
        self._connection.on_end = self._on_end
        self._connection.on_denied = self._on_denied
        await self._connection.listen(f"{self._inbox}.*.*", self._take)
        await self._connection.flush()
        self._watch()

    async def publish(self, rows: pa.RecordBatch) -> PublishedRows:
        """Publishes rows in order; waits until each is answered, or for a cut."""
        sending = _Sending({}, asyncio.get_running_loop().create_future(), time.monotonic())
        self._fill(sending, rows)
        if not sending.frames or self._cut is not None:
            return self._published(sending)
        if not self._sendings:
            self._heard_s = time.monotonic()
        self._number += 1
        number = self._number
        self._sendings[number] = sending
        self._connection.write(
            _frame(f"{self._inbox}.{number}.{row}", *frame) for row, frame in sending.frames.items()
        )
        try:
            await self._connection.drain()
            if self._cut is None:
                await sending.done
            return self._published(sending)
        finally:
            if sending.frames:  # in doubt
                doubts = self._target.doubts
                doubts.since_s = (
                    min(sending.sent_s, doubts.since_s) if doubts.rows else sending.sent_s
                )
                doubts.rows += len(sending.frames)
            else:
                self._target.doubts.rows = 0
            if self._is_oldest(number):
                self._heard_s = time.monotonic()
            del self._sendings[number]

    @property
    def blocked(self) -> str:
        """The time without an answer, if it is long; else empty."""
        silent_s = time.monotonic() - self._heard_s
        return f"no answer for {silent_s:.0f} s" if self._sendings and silent_s > _SILENT_S else ""

    async def close(self) -> None:
        """Ends the connection."""
        if self._watcher is not None:
            self._watcher.cancel()
        for look in self._looks:
            look.cancel()
        await self._connection.close()

    def _fill(self, sending: _Sending, rows: pa.RecordBatch) -> None:
        most = self._connection.most_bytes
        bodies = rows.column("body").to_pylist()
        blocks = from_rows(rows, message_ids(rows))
        named = subjects(rows, self._target.subject)
        own = {subject for subject in set(named) if self._is_own(subject)}
        for row, (body, made, subject) in enumerate(zip(bodies, blocks, named, strict=True)):
            block = made
            if subject not in own and not isinstance(block, ValueError):
                block = block[: -len(_END)] + self._expected + _END
            size = 0 if isinstance(block, ValueError) else len(block) + len(body or b"")
            reason: object = block
            if not isinstance(block, ValueError):
                reason = subject_flaw(subject, self._own)
            if most and size > most:
                reason = f"it has {size} bytes; the server takes {most}"
            if reason or isinstance(block, ValueError):
                sending.unfit[row] = f"NATS cannot carry it: {reason}"
            else:
                sending.frames[row] = (subject, block, body or b"")

    def _published(self, sending: _Sending) -> PublishedRows:
        return PublishedRows(sending.confirmed, sending.refused, sending.unfit, self._cut)

    def _take(self, message: Received) -> None:
        """Takes the answer to a row."""
        _, number_text, row_text = message.subject.rsplit(b".", 2)
        number, row = int(number_text), int(row_text)
        if self._is_oldest(number):
            self._heard_s = time.monotonic()
        sending = self._sendings.get(number)
        if sending is None or row not in sending.frames:
            return
        if not message.body:  # a status: nobody takes the subject
            sending.refused[row] = f"returned: no stream takes '{sending.frames[row][0]}'"
        else:
            answer = json_object(message.body)
            error = api_error(answer)
            if answer.get("stream", self._target.place) != self._target.place:
                error = _ELSEWHERE.format(answer["stream"])
                # The stream may have given the subject up: this message is the last one there.
                subject = sending.frames[row][0]
                self._own = tuple(each for each in self._own if not takes(each, subject))
            elif not error and not ("stream" in answer and isinstance(answer.get("seq"), int)):
                error = _NO_STREAM.format(sending.frames[row][0])
            if error:
                ends = sending.unfit if error.lower().startswith(_NEVER) else sending.refused
                ends[row] = error
            elif answer.get("duplicate"):
                look = asyncio.create_task(self._look(sending, row, answer["seq"]))
                self._looks.add(look)
                look.add_done_callback(self._looked)
                return
            else:
                sending.confirmed.append(row)
        sending.answered(row)

    async def _look(self, sending: _Sending, row: int, sequence: int) -> None:
        """Confirms a duplicate, unless the stream shows that it is another message (L23)."""
        try:
            question = {"seq": sequence}
            found = {} if self._blind else await self._connection.ask(self._look_at, question)
        except CutError as cut:
            if self._cut is None and not self._blind and _TAKEN not in cut.reason.lower():
                raise
            found = {}
        if self._cut is not None:
            return
        there = found.get("message")
        if there is None or self._is_same(sending.frames[row], _stored(there)):
            sending.confirmed.append(row)
        else:
            sending.refused[row] = _ANOTHER.format(self._window_s)
        sending.answered(row)

    def _is_same(self, sent: tuple[str, bytes, bytes], stored: tuple[str, bytes, bytes]) -> bool:
        """Whether the stream's message is the one that was sent, maybe under another subject.

        A subject that is none of the stream's own reached it by a mapping of the account.
        """
        headers = [each[1].replace(self._expected, b"") for each in (sent, stored)]
        place = sent[0] == stored[0] or self._transforms or not self._is_own(sent[0])
        return headers[0] == headers[1] and sent[2] == stored[2] and place

    def _is_own(self, subject: str) -> bool:
        """Whether the stream's own subjects name a subject."""
        return any(takes(each, subject) for each in self._own)

    def _looked(self, look: asyncio.Task[None]) -> None:
        """Ends the connection if a look at a duplicate failed: its row would wait for ever."""
        self._looks.discard(look)
        if not look.cancelled() and look.exception() is not None:
            self._on_end(CutError(f"a duplicate cannot be compared: {look.exception()!r}"))

    @property
    def _look_at(self) -> str:
        """The call of the API that gives a message."""
        return f"STREAM.MSG.GET.{self._target.place}"

    def _on_denied(self, subject: str) -> bool:
        """Refuses the rows with a subject that the user may not publish to (L22).

        False: it is the link's own subject, or a call that it needs, and ends the connection.
        """
        if subject == f"$JS.API.{self._look_at}":
            if not self._blind:
                told = _BLIND.format(who=self._target.address.who, call=subject)
                log(logging.WARNING, self._target.name, "duplicates", told)
            self._blind = True
            return True
        if self._target.subject or subject.startswith("$JS.API."):
            return False
        for sending in self._sendings.values():
            for row in [row for row, frame in sending.frames.items() if frame[0] == subject]:
                who = self._target.address.who
                sending.refused[row] = f"{who} may not publish to '{subject}'"
                sending.answered(row)
        return True

    def _refuse_strays(self, silent_s: float) -> bool:
        """Refuses what is left of the oldest batch, if its subjects are none of the stream (L22).

        Something else subscribed to them, and does not answer.
        """
        sending = next(iter(self._sendings.values()))
        named = {subject for subject, _, _ in sending.frames.values()}
        if not self._own or any(map(self._is_own, named)):
            return False
        for row, (subject, _, _) in list(sending.frames.items()):
            sending.refused[row] = _SILENT.format(subject, silent_s)
            sending.answered(row)
        return True

    def _is_oldest(self, number: int) -> bool:
        return number == next(iter(self._sendings), None)

    def _watch(self) -> None:
        """Ends the connection if two looks find no answer to the oldest batch in time (L22).

        The first look after a pause of this process comes before the answers that it has to read.
        """
        silent_s = time.monotonic() - self._heard_s
        before, self._overdue = self._overdue, bool(self._sendings) and silent_s > LINK_ANSWER_S
        overdue = before and self._overdue
        if overdue and not self._refuse_strays(silent_s):
            text = f"the stream '{self._target.place}' has not answered for {silent_s:.0f} s"
            self._connection.end(CutError(text))
        else:
            self._overdue = self._overdue and not overdue
            self._watcher = asyncio.get_running_loop().call_later(_LOOK_S, self._watch)

    def _on_end(self, cut: CutError) -> None:
        self._cut = cut
        for sending in self._sendings.values():
            if not sending.done.done():
                sending.done.set_result(None)


def _frame(reply: str, subject: str, headers: bytes, body: bytes) -> bytes:
    """A frame that publishes a message with headers, and asks for an answer."""
    size = len(headers)
    head = f"HPUB {subject} {reply} {size} {size + len(body)}\r\n".encode()
    return b"".join((head, headers, body, b"\r\n"))


def _stored(message: dict[str, Any]) -> tuple[str, bytes, bytes]:
    """Subject, headers and body of a message as the stream gives it."""
    parts = (base64.b64decode(message.get(name, "")) for name in ("hdrs", "data"))
    return (message["subject"], *parts)
