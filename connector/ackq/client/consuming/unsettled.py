"""The outstanding delivery tags of a channel, and their settlements until they are answered.

Rules C2-C4, C15, C17.

Invariant: a tag is settled once (C2), and a `Settle` on the wire names only tags that the
application settled with that disposition. A tag is added where it goes to before it is removed from
where it was: after Ctrl-C between the two it is in both, and no `multiple` passes over it.
Settlements are coalesced while the sender is busy or a few are unanswered: if no older tag is
outstanding, into one `Settle` with `multiple`. No cost depends on the number of outstanding tags
(C16). No I/O, no clock, no lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from ackq import limits
from ackq.client.consuming.settlement import PendingSettlement, SettleDraft, Settlement
from ackq.client.consuming.tag_set import TagSet
from ackq.client.ranges import Range
from ackq.errors import AckqError, StaleDeliveryTagError, UnknownDeliveryTagError
from ackq.outcomes import ACCEPT, RELEASE, Disposition
from ackq.v1 import consuming_pb2 as pb
from ackq.wire.outcomes import TO_WIRE

# Maximum number of unanswered `Settle`s; the broker's reply cache holds more answers than this for
# a client that reconnects.
_UNANSWERED: Final = 4_096
# While this many are unanswered, new settlements are collected: one `Settle` for each message costs
# client and broker more than the message itself.
_PIPELINED: Final = 4
# Lazy accepts are sent at this number of messages, or this long after the first.
LAZY_MESSAGES: Final = 1_000
LAZY_S: Final = 1.0


class _SentSettle(NamedTuple):
    """A `Settle` that was sent, the number of its messages, and the settlement they belong to."""

    request: pb.Settle
    messages: int
    settlement: PendingSettlement


# Consecutive tags, and the settlement to which they belong.
_Run = tuple[Range, PendingSettlement]


class Unsettled:
    """The outstanding tags of one channel and their unanswered settlements.

    Attributes:
        unread: Tags that arrived and are not yet delivered to the application.
        unacked: Tags that are delivered to the application and not settled.
        void: Tags up to this one belong to an earlier channel; the broker's tag 1 is the tag after
            it (C17).
        lazy_limit: Lazy accepts are sent at this number of messages.
        settle_runs: Whether the broker supports a `Settle` that names runs of tags.
    """

    def __init__(self) -> None:
        self.unread = TagSet()
        self.unacked = TagSet()
        self.void = 0
        self.lazy_limit = LAZY_MESSAGES
        self.settle_runs = False
        # Settlements since drafts were last made; one for each disposition.
        self._unsent: dict[Disposition, PendingSettlement] = {}
        self._last_unsent: PendingSettlement | None = None
        self._lazy = 0  # number of unsent messages, if all are lazy accepts
        self._lazy_since: float | None = None
        self._drafts: deque[SettleDraft] = deque()
        self._next_number = 1
        self._sent: dict[int, _SentSettle] = {}
        self._repeats: deque[int] = deque()  # numbers sent before a reconnect, in their order

    # --- called for the application ---

    @property
    def idle(self) -> bool:
        """Whether every settlement is sent and answered."""
        return not (self._unsent or self._drafts or self._sent)

    def hand_over(self, runs: Iterable[Range]) -> None:
        """Records that messages are delivered to the application: unread becomes unacked."""
        for first, last in runs:
            self.unacked.add(first, last)
            removed = self.unread.remove(first, last)
            assert removed == last - first + 1, "a message is handed over once"

    def hand_over_one(self, tag: int) -> None:
        """Records that one message is delivered to the application."""
        self.unacked.insert(tag)
        removed = self.unread.discard(tag)
        assert removed, "a message is handed over once"

    def settle_one(self, tag: int, disposition: Disposition, future: Settlement | None) -> None:
        """Settles one unacked message; raises like `settle`."""
        if tag not in self.unacked:
            raise self._not_unacked(tag)
        self._pending(disposition).add_one(tag, future)
        self.unacked.discard(tag)

    def settle(
        self, runs: list[Range], disposition: Disposition, future: Settlement | None
    ) -> None:
        """Settles unacked messages.

        Raises:
            StaleDeliveryTagError: A message belongs to an earlier channel; none is settled (C17).
            UnknownDeliveryTagError: A message is not unacked (C2).
        """
        if self.void:
            for first, _ in runs:
                if first <= self.void:
                    raise stale_tag(first)
        removed: list[Range] = []
        messages = 0
        try:
            for run in runs:
                self._check_unacked(*run)
                removed.append(run)
                messages += self.unacked.remove(*run)
            self._pending(disposition).add(runs, messages, future)
        except BaseException:
            for first, last in removed:  # nothing is settled
                self.unacked.add(first, last)
            raise

    def settle_up_to(self, tag: int, disposition: Disposition, future: Settlement | None) -> None:
        """Settles all unacked messages up to and including a tag (C3), but no unread messages.

        Raises:
            StaleDeliveryTagError: The tag belongs to an earlier channel (C17).
            UnknownDeliveryTagError: No message up to the tag is unacked.
        """
        runs = self.unacked.up_to(tag)
        if not runs:
            raise self._not_unacked(tag)
        self._pending(disposition).add(runs, _messages(runs), future)
        self.unacked.remove(runs[0].first, tag)

    def accept_lazily(self, runs: list[Range], now: float) -> None:
        """Accepts unacked messages lazily: the accepts are sent later, in bulk (DUPS_OK)."""
        only_lazy = not self._unsent or self._lazy_since is not None
        since, lazy = self._lazy_since, self._lazy
        self.settle(runs, ACCEPT, None)
        if only_lazy:
            self._lazy_since = now if since is None else since
            self._lazy = lazy + _messages(runs)

    def release_unread(self, runs: list[Range]) -> None:
        """Releases unread messages that the application no longer wants."""
        self._pending(RELEASE).add(runs, _messages(runs), None)
        for first, last in runs:
            removed = self.unread.remove(first, last)
            assert removed == last - first + 1, "unread messages are released once"

    # --- called by the sender ---

    def next_repeat(self) -> pb.Settle | None:
        """The next unanswered `Settle` to repeat after a reconnect; None if none is left."""
        while self._repeats:
            sent = self._sent.get(self._repeats.popleft())
            if sent is not None:
                return sent.request
        return None

    def next_request(self, now: float, lowest_missing: int | None) -> pb.Settle | None:
        """The next `Settle` to send; None if none is due.

        Args:
            now: Current time in seconds.
            lowest_missing: The lowest outstanding tag that did not arrive; None if none is missing.
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
        """When the next `Settle` is due, in seconds; 0 means now, None means none is due."""
        if len(self._sent) >= _UNANSWERED:
            return None
        if self._drafts:
            return 0
        if not self._unsent or len(self._sent) >= _PIPELINED:
            return None
        if self._lazy_since is None or self._lazy >= self.lazy_limit:
            return 0
        return self._lazy_since + LAZY_S

    def flush_lazy(self) -> None:
        """Makes lazy accepts due now."""
        self._lazy_since = None

    # --- called for the broker's answers ---

    def on_settled(self, number: int, messages: int) -> PendingSettlement | None:
        """Applies an answer; returns its settlement if all of it is answered now (C15).

        Ignores an unknown number: it was answered before, and its `Settle` was repeated after a
        reconnect.
        """
        sent = self._sent.pop(number, None)
        if sent is None:
            return None
        settlement = sent.settlement
        settlement.answered += sent.messages
        settlement.mismatched |= messages != sent.messages
        return settlement if settlement.answered == settlement.messages else None

    def on_disconnect(self) -> None:
        """Repeats every unanswered `Settle` on the next stream, with the same number."""
        self._repeats = deque(self._sent)

    def renew(self, void: int) -> list[PendingSettlement]:
        """Forgets all tags, which end at `void`; returns the unanswered settlements (C17)."""
        left = self.drain()
        self.unread = TagSet()
        self.unacked = TagSet()
        self.void = void
        self._lazy = 0
        self._lazy_since = None
        return left

    @property
    def unanswered(self) -> list[PendingSettlement]:
        """The unanswered settlements, each once."""
        settlements = dict.fromkeys(sent.settlement for sent in self._sent.values())
        settlements.update(dict.fromkeys(draft.settlement for draft in self._drafts))
        settlements.update(dict.fromkeys(self._unsent.values()))
        return list(settlements)

    def drain(self) -> list[PendingSettlement]:
        """Removes all unanswered settlements; returns each of them once."""
        settlements = self.unanswered
        self._sent.clear()
        self._repeats.clear()
        self._drafts.clear()
        self._unsent, self._last_unsent = {}, None
        return settlements

    # --- drafts ---

    def _pending(self, disposition: Disposition) -> PendingSettlement:
        """The undrafted settlement of a disposition; makes waiting lazy accepts due as well."""
        self._lazy_since = None
        self._lazy = 0
        pending = self._last_unsent
        if pending is None or pending.disposition is not disposition:
            pending = self._unsent.setdefault(disposition, PendingSettlement(disposition))
            self._last_unsent = pending
        return pending

    def _prepare_drafts(self, lowest_missing: int | None) -> None:
        """Makes drafts of the unsent settlements.

        Every tag below the lowest outstanding one (unread, unacked or missing) is settled by now:
        sent before, or in one of these drafts. Below it, `multiple` settlements sent one after
        another in the order of tags settle exactly the tags that they should.
        """
        pending, self._unsent, self._last_unsent = self._unsent, {}, None
        self._lazy_since = None
        self._lazy = 0
        outstanding = [
            each for each in (self.unacked.lowest, self.unread.lowest, lowest_missing) if each
        ]
        limit = min(outstanding, default=None)
        ascending = sorted(
            (
                (Range(first, last), settlement)
                for settlement in pending.values()
                for first, last in settlement.runs
            ),
            key=_first_tag,
        )
        below = bisect_left(ascending, limit, key=_first_tag) if limit else len(ascending)
        self._drafts.extend(_sweeps(ascending[:below]))
        most = limits.MAX_SETTLE_RUNS if self.settle_runs else 1
        self._drafts.extend(_drafts_of(ascending[below:], most))

    def _next_draft(self) -> SettleDraft:
        """The draft for the next `Settle`; only its first tag if runs are not supported."""
        draft = self._drafts[0]
        if draft.sweep or self.settle_runs or draft.messages == 1:
            return self._drafts.popleft()
        return draft.split_first()

    def _send(self, draft: SettleDraft) -> pb.Settle:
        """Makes the `Settle` of a draft and records it as waiting for its answer."""
        disposition = draft.settlement.disposition
        request = pb.Settle(
            outcome=TO_WIRE[disposition.outcome],
            reason=disposition.reason,
            delay_ms=disposition.delay_ms,
            number=self._next_number,
        )
        if draft.sweep or draft.messages == 1:
            request.delivery_tag = draft.runs[-1].last - self.void
            request.multiple = draft.messages > 1
        else:
            request.first_tag.extend(first - self.void for first, _ in draft.runs)
            request.rows.extend(last - first + 1 for first, last in draft.runs)
        self._sent[self._next_number] = _SentSettle(request, draft.messages, draft.settlement)
        self._next_number += 1
        draft.settlement.sent = True
        return request

    def _check_unacked(self, first: int, last: int) -> None:
        if self.unacked.count(first, last) != last - first + 1:
            raise unknown_tag(
                next(tag for tag in range(first, last + 1) if tag not in self.unacked)
            )

    def _not_unacked(self, tag: int) -> AckqError:
        return stale_tag(tag) if tag <= self.void else unknown_tag(tag)


def _sweeps(ascending: Iterable[_Run]) -> list[SettleDraft]:
    """Drafts of runs below every outstanding tag, one for each stretch of equal settlement."""
    drafts: list[SettleDraft] = []
    for run, settlement in ascending:
        if not drafts or drafts[-1].settlement is not settlement:
            drafts.append(SettleDraft(settlement, sweep=True))
        drafts[-1].add(run)
    return drafts


def _drafts_of(ascending: Iterable[_Run], most: int) -> list[SettleDraft]:
    """Drafts of at most `most` runs, each of one settlement."""
    drafts: list[SettleDraft] = []
    growing: dict[PendingSettlement, SettleDraft] = {}
    for run, settlement in ascending:
        draft = growing.get(settlement)
        if draft is None or len(draft.runs) == most:
            draft = growing[settlement] = SettleDraft(settlement, sweep=False)
            drafts.append(draft)
        draft.add(run)
    return drafts


def unknown_tag(tag: int) -> UnknownDeliveryTagError:
    """The error for a tag that is not unacked (C2)."""
    return UnknownDeliveryTagError(
        f"PRECONDITION_FAILED unknown delivery tag {tag}: the channel has no such message, or it "
        "was settled before. The channel is closed and its messages are delivered again; settle "
        "each message once.",
        delivery_tag=tag,
    )


def stale_tag(tag: int) -> StaleDeliveryTagError:
    """The error for a tag that belongs to an earlier channel (C17)."""
    return StaleDeliveryTagError(
        f"Message {tag} came before the channel was renewed, and was put back then: this "
        "settlement has no effect, and the message is delivered again under another tag.",
        delivery_tag=tag,
    )


def _first_tag(run: _Run) -> int:
    return run[0].first


def _messages(runs: Iterable[Range]) -> int:
    return sum(last - first + 1 for first, last in runs)
