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
from ackq.outcomes import ACCEPT, RELEASE, Disposition
from ackq.v1 import consuming_pb2 as pb
from ackq.wire.outcomes import TO_WIRE

# Settlements on the wire without an answer. What is settled meanwhile leaves together, and the
# broker remembers the answers of more than these for a client that was cut.
_UNANSWERED: Final = 4_096
# Lazily accepted messages leave when there are so many, or so long after the first.
LAZY_MESSAGES: Final = 1_000
LAZY_S: Final = 1.0


@dataclass(slots=True, eq=False)
class PendingSettlement:
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
class _SettleDraft:
    """Tags to be sent, all alike.

    Attributes:
        runs: The tags.
        entries: Where they come from, and how many of each.
        sweep: Everything outstanding up to the last is among them: one `multiple` says it (C3).
    """

    disposition: Disposition
    runs: list[Range]
    settlements: list[tuple[PendingSettlement, int]]
    sweep: bool

    def add(self, first: int, last: int, settlement: PendingSettlement) -> None:
        """More tags; above the others in a sweep."""
        if self.runs and self.runs[-1].last + 1 == first:
            self.runs[-1] = Range(self.runs[-1].first, last)
        else:
            self.runs.append(Range(first, last))
        self.settlements.append((settlement, last - first + 1))


class _SentSettle(NamedTuple):
    """A settlement on the wire, and how many messages of which entries it holds."""

    request: pb.Settle
    messages: int
    settlements: Sequence[tuple[PendingSettlement, int]]


class Unsettled:
    """The settlements of one channel.

    Attributes:
        unseen: Tags that arrived and were not handed over to the application yet.
        seen: Tags the application has and did not settle.
        lazy_messages: So many lazily accepted messages leave at once.
        takes_runs: The broker takes settlements that name runs of tags.
    """

    def __init__(self) -> None:
        self.unread = TagSet()
        self.unacked = TagSet()
        self.lazy_limit = LAZY_MESSAGES
        self.settle_runs = False
        self._unsent: list[PendingSettlement] = []  # since the sender last looked
        self._lazy = 0  # messages in it, when they were all accepted lazily
        self._lazy_since: float | None = None
        self._drafts: deque[_SettleDraft] = deque()
        self._next_number = 1
        self._sent: dict[int, _SentSettle] = {}
        self._repeats: deque[int] = deque()  # sent on a stream that was cut, in their order

    # --- what the application does ---

    @property
    def idle(self) -> bool:
        """Whether every settlement is answered."""
        return not (self._unsent or self._drafts or self._sent)

    def hand_over(self, runs: Iterable[Range]) -> None:
        """The application gets messages."""
        for first, last in runs:
            removed = self.unread.remove(first, last)
            assert removed == last - first + 1, "a message is handed over once"
            self.unacked.add(first, last)

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
            if wanted > 1 and self.unacked.count(first, last) != wanted:
                raise unknown_tag(
                    next(tag for tag in range(first, last + 1) if tag not in self.unacked)
                )
            if self.unacked.remove(first, last) != wanted:
                raise unknown_tag(first)
            messages += wanted
        self._add(PendingSettlement(disposition, runs, future, messages))

    def settle_up_to(self, tag: int, disposition: Disposition, future: Settlement | None) -> None:
        """The application settles everything it has up to and including a tag (C3).

        Messages that wait to be handed over are not meant: it knows nothing of them.

        Raises:
            UnknownDeliveryTagError: It has nothing there (any more).
        """
        runs = self.unacked.take_up_to(tag)
        if not runs:
            raise unknown_tag(tag)
        self._add(PendingSettlement(disposition, runs, future, _messages(runs)))

    def accept_lazily(self, runs: list[Range], now: float) -> None:
        """Accepts messages it has: soon, with others."""
        only_lazy = len(self._unsent) == 0 or self._lazy_since is not None
        since, lazy = self._lazy_since, self._lazy
        self.settle(runs, ACCEPT, None)
        if only_lazy:
            self._lazy_since = now if since is None else since
            self._lazy = lazy + _messages(runs)

    def release_unread(self, runs: list[Range]) -> None:
        """Releases messages that the application did not read and will not read."""
        for first, last in runs:
            removed = self.unread.remove(first, last)
            assert removed == last - first + 1, "what is released unread was not handed over"
        self._add(PendingSettlement(RELEASE, runs, None, _messages(runs)))

    # --- what the sender does ---

    def next_repeat(self) -> pb.Settle | None:
        """The next settlement to ask again for, after a cut."""
        while self._repeats:
            sent = self._sent.get(self._repeats.popleft())
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
        if not self._drafts:
            due_at = self.wake_at
            if due_at is None or now < due_at:
                return None
            self._prepare_drafts(lowest_missing)
        return self._send(self._next_draft())

    @property
    def wake_at(self) -> float | None:
        """When there is something to send; 0: now; None: no time is set."""
        if len(self._sent) >= _UNANSWERED:
            return None
        if self._drafts:
            return 0
        if not self._unsent:
            return None
        if self._lazy_since is None or self._lazy >= self.lazy_limit:
            return 0
        return self._lazy_since + LAZY_S

    def flush_lazy(self) -> None:
        """What was accepted lazily leaves now."""
        self._lazy_since = None

    # --- what the broker says ---

    def on_settled(self, number: int, messages: int) -> list[PendingSettlement]:
        """C15: a settlement is answered; answers what is settled completely now.

        An unknown number was answered before: a client that was cut asks again.
        """
        sent = self._sent.pop(number, None)
        if sent is None:
            return []
        done = []
        for settlement, count in sent.settlements:
            settlement.left -= count
            settlement.mismatched |= messages != sent.messages
            if not settlement.left:
                done.append(settlement)
        return done

    def on_disconnected(self) -> None:
        """The stream is gone: what has no answer is asked again, under its number."""
        self._repeats = deque(self._sent)

    def drain(self) -> list[PendingSettlement]:
        """Gives up: everything without an answer, each once."""
        settlements: dict[PendingSettlement, None] = {}
        for sent in self._sent.values():
            settlements.update(dict.fromkeys(settlement for settlement, _ in sent.settlements))
        for draft in self._drafts:
            settlements.update(dict.fromkeys(settlement for settlement, _ in draft.settlements))
        settlements.update(dict.fromkeys(self._unsent))
        self._sent.clear()
        self._repeats.clear()
        self._drafts.clear()
        self._unsent.clear()
        return list(settlements)

    # --- parts ---

    def _add(self, settlement: PendingSettlement) -> None:
        self._lazy_since = None
        self._lazy = 0
        last = self._unsent[-1] if self._unsent else None
        if (
            last is None
            or settlement.future is not None
            or last.future is not None
            or last.disposition is not settlement.disposition
        ):
            self._unsent.append(settlement)
            return
        # Nobody waits for either: consecutive messages become one run.
        last.messages += settlement.messages
        last.left += settlement.messages
        runs = last.runs
        for first, end in settlement.runs:
            if runs[-1].last + 1 == first:
                runs[-1] = Range(runs[-1].first, end)
            else:
                runs.append(Range(first, end))

    def _prepare_drafts(self, lowest_missing: int | None) -> None:
        """Makes parts of what is pending.

        Below the lowest tag that is kept (unseen, unsettled or missing), everything is settled by
        now: sent before, or in one of these parts. There, a `multiple` after another, in the order
        of tags, settles exactly what it should.
        """
        pending, self._unsent = self._unsent, []
        self._lazy_since = None
        self._lazy = 0
        kept = [each for each in (self.unacked.lowest, self.unread.lowest, lowest_missing) if each]
        limit = min(kept, default=None)
        below: list[tuple[int, int, PendingSettlement]] = []
        above: list[tuple[int, int, PendingSettlement]] = []
        for settlement in pending:
            for first, last in settlement.runs:
                group = below if limit is None or last < limit else above
                group.append((first, last, settlement))
        below.sort(key=_first_tag)
        sweep: _SettleDraft | None = None
        for first, last, settlement in below:
            if sweep is None or sweep.disposition != settlement.disposition:
                sweep = _SettleDraft(settlement.disposition, [], [], sweep=True)
                self._drafts.append(sweep)
            sweep.add(first, last, settlement)
        if self.settle_runs:
            self._drafts.extend(_drafts_of(sorted(above, key=_first_tag)))
        else:
            for first, last, settlement in above:
                alone = [(settlement, last - first + 1)]
                self._drafts.append(
                    _SettleDraft(settlement.disposition, [Range(first, last)], alone, sweep=False)
                )

    def _next_draft(self) -> _SettleDraft:
        """What one settlement can say: the next part, or its first tag."""
        draft = self._drafts[0]
        first, last = draft.runs[0]
        if draft.sweep or self.settle_runs or first == last:
            return self._drafts.popleft()
        settlement, messages = draft.settlements[0]
        draft.runs[0] = Range(first + 1, last)
        draft.settlements[0] = (settlement, messages - 1)
        return _SettleDraft(
            draft.disposition, [Range(first, first)], [(settlement, 1)], sweep=False
        )

    def _send(self, draft: _SettleDraft) -> pb.Settle:
        """The settlement of a part."""
        disposition, runs = draft.disposition, draft.runs
        messages = sum(count for _, count in draft.settlements)
        request = pb.Settle(
            outcome=TO_WIRE[disposition.outcome],
            reason=disposition.reason,
            delay_ms=disposition.delay_ms,
            number=self._next_number,
        )
        if draft.sweep or messages == 1:
            request.delivery_tag = runs[-1].last
            request.multiple = messages > 1
        else:
            request.first_tag.extend(first for first, _ in runs)
            request.rows.extend(last - first + 1 for first, last in runs)
        self._sent[self._next_number] = _SentSettle(request, messages, draft.settlements)
        self._next_number += 1
        for settlement, _ in draft.settlements:
            settlement.sent = True
        return request


def _drafts_of(runs: Iterable[tuple[int, int, PendingSettlement]]) -> list[_SettleDraft]:
    """Parts of what is settled alike; runs ascend."""
    drafts: list[_SettleDraft] = []
    growing: dict[Disposition, _SettleDraft] = {}
    for first, last, settlement in runs:
        draft = growing.get(settlement.disposition)
        if draft is None or len(draft.runs) == limits.MAX_SETTLE_RUNS:
            draft = growing[settlement.disposition] = _SettleDraft(
                settlement.disposition, [], [], sweep=False
            )
            drafts.append(draft)
        draft.add(first, last, settlement)
    return drafts


def unknown_tag(tag: int) -> UnknownDeliveryTagError:
    """C2."""
    return UnknownDeliveryTagError(
        f"PRECONDITION_FAILED unknown delivery tag {tag}: the channel has no such message, or it "
        "was settled before. The channel is closed and what it held is delivered again; settle "
        "each message once.",
        delivery_tag=tag,
    )


def _first_tag(run: tuple[int, int, PendingSettlement]) -> int:
    return run[0]


def _messages(runs: Iterable[Range]) -> int:
    return sum(last - first + 1 for first, last in runs)
