"""The delivery tags an application has, and what it said of them (C2-C4, C15).

Invariant: a tag is settled once (C2), and a settlement on the wire names only tags that the
application settled that way. Whatever was settled since the sender last looked leaves together:
where nothing older is kept back, as one `Settle` with `multiple`. No cost follows the number of
tags that are outstanding (C16). No I/O, no clock, no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ackq import limits
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.tag_set import TagSet
from ackq.client.ranges import Range
from ackq.errors import UnknownDeliveryTagError
from ackq.outcomes import ACCEPT, Disposition
from ackq.v1 import consuming_pb2 as pb
from ackq.wire.outcomes import TO_WIRE

# Settlements on the wire without an answer. What is settled meanwhile leaves together, and the
# broker remembers the answers of more than these for a client that was cut.
_UNANSWERED: Final = 4_096
# Lazily accepted messages leave when there are so many, or so long after the first.
LAZY_MESSAGES: Final = 1_000
LAZY_S: Final = 1.0


@dataclass(slots=True, eq=False)
class Entry:
    """What the application settled by one call.

    Attributes:
        disposition: The outcome and its details.
        runs: Its tags.
        future: Told what became of it; None: nobody asked.
        left: Messages without an answer.
        sent: Whether the broker may have seen any of it.
        mismatched: An answer counted other messages than were asked for.
    """

    disposition: Disposition
    runs: list[Range]
    future: Settlement | None
    messages: int
    left: int = field(init=False)
    sent: bool = False
    mismatched: bool = False

    def __post_init__(self) -> None:
        self.left = self.messages


@dataclass(slots=True, eq=False)
class _Part:
    """Tags to be sent, all alike.

    Attributes:
        runs: The tags.
        entries: Where they come from, and how many of each.
        sweep: Everything outstanding up to the last is among them: one `multiple` says it (C3).
    """

    disposition: Disposition
    runs: list[Range]
    entries: list[tuple[Entry, int]]
    sweep: bool

    def add(self, first: int, last: int, entry: Entry) -> None:
        """More tags; above the others in a sweep."""
        if self.runs and self.runs[-1].last + 1 == first:
            self.runs[-1] = Range(self.runs[-1].first, last)
        else:
            self.runs.append(Range(first, last))
        self.entries.append((entry, last - first + 1))


class _Sent(NamedTuple):
    """A settlement on the wire, and how many messages of which entries it holds."""

    request: pb.Settle
    messages: int
    entries: Sequence[tuple[Entry, int]]


class Settling:
    """The settlements of one channel.

    Attributes:
        unseen: Tags that arrived and were not handed over to the application yet.
        seen: Tags the application has and did not settle.
        lazy_messages: So many lazily accepted messages leave at once.
        takes_runs: The broker takes settlements that name runs of tags.
    """

    def __init__(self) -> None:
        self.unseen = TagSet()
        self.seen = TagSet()
        self.lazy_messages = LAZY_MESSAGES
        self.takes_runs = False
        self._pending: list[Entry] = []  # since the sender last looked
        self._lazy = 0  # messages in it, when they were all accepted lazily
        self._lazy_since: float | None = None
        self._parts: deque[_Part] = deque()
        self._next_number = 1
        self._sent: dict[int, _Sent] = {}
        self._again: deque[int] = deque()  # sent on a stream that was cut, in their order

    # --- what the application does ---

    @property
    def idle(self) -> bool:
        """Whether every settlement is answered."""
        return not (self._pending or self._parts or self._sent)

    def hand_over(self, runs: Iterable[Range]) -> None:
        """The application gets messages."""
        for first, last in runs:
            removed = self.unseen.remove(first, last)
            assert removed == last - first + 1, "a message is handed over once"
            self.seen.add(first, last)

    def settle(
        self, runs: list[Range], disposition: Disposition, future: Settlement | None
    ) -> None:
        """The application settles messages it has.

        Raises:
            UnknownDeliveryTagError: It does not have one of them, or not any more (C2).
        """
        messages = 0
        for first, last in runs:
            wanted = last - first + 1
            if wanted > 1 and self.seen.count(first, last) != wanted:
                raise unknown_tag(
                    next(tag for tag in range(first, last + 1) if tag not in self.seen)
                )
            if self.seen.remove(first, last) != wanted:
                raise unknown_tag(first)
            messages += wanted
        self._add(Entry(disposition, runs, future, messages))

    def settle_up_to(self, tag: int, disposition: Disposition, future: Settlement | None) -> None:
        """The application settles everything it has up to and including a tag (C3).

        Messages that wait to be handed over are not meant: it knows nothing of them.

        Raises:
            UnknownDeliveryTagError: It has nothing there (any more).
        """
        runs = self.seen.take_up_to(tag)
        if not runs:
            raise unknown_tag(tag)
        self._add(Entry(disposition, runs, future, sum(last - first + 1 for first, last in runs)))

    def accept_lazily(self, runs: list[Range], now: float) -> None:
        """Accepts messages it has: soon, with others."""
        only_lazy = len(self._pending) == 0 or self._lazy_since is not None
        since, lazy = self._lazy_since, self._lazy
        self.settle(runs, ACCEPT, None)
        if only_lazy:
            self._lazy_since = now if since is None else since
            self._lazy = lazy + sum(last - first + 1 for first, last in runs)

    def give_back(self, runs: list[Range], disposition: Disposition) -> None:
        """Settles messages that nobody will read."""
        for first, last in runs:
            removed = self.unseen.remove(first, last)
            assert removed == last - first + 1, "what is given back was not handed over"
        self._add(Entry(disposition, runs, None, sum(last - first + 1 for first, last in runs)))

    # --- what the sender does ---

    def next_again(self) -> pb.Settle | None:
        """The next settlement to ask again for, after a cut."""
        while self._again:
            sent = self._sent.get(self._again.popleft())
            if sent is not None:
                return sent.request
        return None

    def next_request(self, now: float, lowest_missing: int | None) -> pb.Settle | None:
        """The next settlement to put on the wire.

        Args:
            now: Seconds.
            lowest_missing: The lowest tag that is outstanding but did not arrive; None: none.
        """
        if len(self._sent) >= _UNANSWERED:
            return None
        if not self._parts:
            due_at = self.wake_at
            if due_at is None or now < due_at:
                return None
            self._cut(lowest_missing)
        return self._send(self._next_part())

    @property
    def wake_at(self) -> float | None:
        """When there is something to send; 0: now; None: no time is set."""
        if len(self._sent) >= _UNANSWERED:
            return None
        if self._parts:
            return 0
        if not self._pending:
            return None
        if self._lazy_since is None or self._lazy >= self.lazy_messages:
            return 0
        return self._lazy_since + LAZY_S

    def hurry(self) -> None:
        """What was accepted lazily leaves now."""
        self._lazy_since = None

    # --- what the broker says ---

    def on_settled(self, number: int, messages: int) -> list[Entry]:
        """C15: a settlement is answered; answers what is settled completely now.

        An unknown number was answered before: a client that was cut asks again.
        """
        sent = self._sent.pop(number, None)
        if sent is None:
            return []
        done = []
        for entry, count in sent.entries:
            entry.left -= count
            entry.mismatched |= messages != sent.messages
            if not entry.left:
                done.append(entry)
        return done

    def on_cut(self) -> None:
        """The stream is gone: what has no answer is asked again, under its number."""
        self._again = deque(self._sent)

    def drain(self) -> list[Entry]:
        """Gives up: everything without an answer, each once."""
        entries: dict[Entry, None] = {}
        for sent in self._sent.values():
            entries.update(dict.fromkeys(entry for entry, _ in sent.entries))
        for part in self._parts:
            entries.update(dict.fromkeys(entry for entry, _ in part.entries))
        entries.update(dict.fromkeys(self._pending))
        self._sent.clear()
        self._again.clear()
        self._parts.clear()
        self._pending.clear()
        return list(entries)

    # --- parts ---

    def _add(self, entry: Entry) -> None:
        self._lazy_since = None
        self._lazy = 0
        last = self._pending[-1] if self._pending else None
        if (
            last is None
            or entry.future is not None
            or last.future is not None
            or last.disposition is not entry.disposition
        ):
            self._pending.append(entry)
            return
        # Nobody waits for either: consecutive messages become one run.
        last.messages += entry.messages
        last.left += entry.messages
        runs = last.runs
        for first, end in entry.runs:
            if runs[-1].last + 1 == first:
                runs[-1] = Range(runs[-1].first, end)
            else:
                runs.append(Range(first, end))

    def _cut(self, lowest_missing: int | None) -> None:
        """Makes parts of what is pending.

        Below the lowest tag that is kept (unseen, unsettled or missing), everything is settled by
        now: sent before, or in one of these parts. There, a `multiple` after another, in the order
        of tags, settles exactly what it should.
        """
        pending, self._pending = self._pending, []
        self._lazy_since = None
        self._lazy = 0
        kept = [each for each in (self.seen.lowest, self.unseen.lowest, lowest_missing) if each]
        limit = min(kept, default=None)
        below: list[tuple[int, int, Entry]] = []
        above: list[tuple[int, int, Entry]] = []
        for entry in pending:
            for first, last in entry.runs:
                part = below if limit is None or last < limit else above
                part.append((first, last, entry))
        below.sort(key=_first_tag)
        sweep: _Part | None = None
        for first, last, entry in below:
            if sweep is None or sweep.disposition != entry.disposition:
                sweep = _Part(entry.disposition, [], [], sweep=True)
                self._parts.append(sweep)
            sweep.add(first, last, entry)
        if self.takes_runs:
            self._parts.extend(_grouped(sorted(above, key=_first_tag)))
        else:
            for first, last, entry in above:
                alone = [(entry, last - first + 1)]
                self._parts.append(
                    _Part(entry.disposition, [Range(first, last)], alone, sweep=False)
                )

    def _next_part(self) -> _Part:
        """What one settlement can say: the next part, or its first tag."""
        part = self._parts[0]
        first, last = part.runs[0]
        if part.sweep or self.takes_runs or first == last:
            return self._parts.popleft()
        entry, messages = part.entries[0]
        part.runs[0] = Range(first + 1, last)
        part.entries[0] = (entry, messages - 1)
        return _Part(part.disposition, [Range(first, first)], [(entry, 1)], sweep=False)

    def _send(self, part: _Part) -> pb.Settle:
        """The settlement of a part."""
        disposition, runs = part.disposition, part.runs
        messages = sum(count for _, count in part.entries)
        request = pb.Settle(
            outcome=TO_WIRE[disposition.outcome],
            reason=disposition.reason,
            delay_ms=disposition.delay_ms,
            number=self._next_number,
        )
        if part.sweep or messages == 1:
            request.delivery_tag = runs[-1].last
            request.multiple = messages > 1
        else:
            request.first_tag.extend(first for first, _ in runs)
            request.rows.extend(last - first + 1 for first, last in runs)
        self._sent[self._next_number] = _Sent(request, messages, part.entries)
        self._next_number += 1
        for entry, _ in part.entries:
            entry.sent = True
        return request


def _grouped(runs: Iterable[tuple[int, int, Entry]]) -> list[_Part]:
    """Parts of what is settled alike; runs ascend."""
    parts: list[_Part] = []
    growing: dict[Disposition, _Part] = {}
    for first, last, entry in runs:
        part = growing.get(entry.disposition)
        if part is None or len(part.runs) == limits.MAX_SETTLE_RUNS:
            part = growing[entry.disposition] = _Part(entry.disposition, [], [], sweep=False)
            parts.append(part)
        part.add(first, last, entry)
    return parts


def unknown_tag(tag: int) -> UnknownDeliveryTagError:
    """C2."""
    return UnknownDeliveryTagError(
        f"PRECONDITION_FAILED unknown delivery tag {tag}: the channel has no such message, or it "
        "was settled before. The channel is closed and what it held is delivered again; settle "
        "each message once.",
        delivery_tag=tag,
    )


def _first_tag(part: tuple[int, int, Entry]) -> int:
    return part[0]
