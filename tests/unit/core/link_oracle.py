"""Models a link message by message: the rules as they read, without columns."""

from dataclasses import dataclass, field

from ackq import limits
from tests.unit.core.harness import SECOND_US

HOUR_US = 3_600 * SECOND_US
# (id, body, content, redelivered) and (position, matched, permitted, rejected) of a delivery.
Row = tuple[str, str, bool, bool]
Answer = tuple[int, bool, bool, bool]


@dataclass
class Entry:
    """A message of the link; `permit` is none, sent, doubt or proven."""

    position: int
    name: str
    body: str
    content: bool
    bound: bool = True
    redelivered: bool = False
    rejected: bool = False
    permit: str = "none"
    loose_us: int = 0
    until_us: int = 0


@dataclass
class Oracle:
    """Entries by position, and the permits of the subscription in their order."""

    stored: bool = False
    drop: bool = False
    there: bool = False
    entries: dict[int, Entry] = field(default_factory=dict)
    batches: list[tuple[int, list[int]]] = field(default_factory=list)
    ambiguous: int = 0
    reused: int = 0
    proved: int = 0
    fresh_from: int = 1
    fresh_proven: bool = False
    subscribed_us: int = 0

    def subscribe(self, now_us, next_position):
        """L17, L10: begins a subscription; permits that are not proven are in doubt."""
        for entry in list(self.entries.values()):
            if not entry.name:
                del self.entries[entry.position]
            elif entry.bound and entry.permit != "proven":
                entry.loose_us = -(-now_us // HOUR_US) * HOUR_US
            entry.bound = False
            if entry.permit == "sent":
                entry.permit = "doubt"
        self.batches, self.proved = [], 0
        self.subscribed_us = now_us
        self.fresh_from, self.fresh_proven = next_position, False

    def deliver(self, rows, present, position, proven, now_us):
        """L6, L7, L11: stores or matches rows; returns the answer of each."""
        before = list(self.entries.values())
        early = now_us < self.subscribed_us + limits.LINK_ACK_GRACE_S * SECOND_US
        answers, found = [], {}
        # Rows with a content key that are not marked as redelivered come last.
        for index in sorted(range(len(rows)), key=lambda at: rows[at][2] and not rows[at][3]):
            taken, doubtful = found[index] = self._find(before, *rows[index], present)
            if taken is not None:
                taken.bound, taken.permit, taken.loose_us = True, "none", 0
            if doubtful is not None:
                before.remove(doubtful)
        for index, (name, body, content, redelivered) in enumerate(rows):
            taken, doubtful = found[index]
            if taken is not None:
                settled = taken.position not in present
                permitted = settled or self.stored
                answers.append((taken.position, True, permitted, permitted and taken.rejected))
                continue
            if doubtful is not None:
                del self.entries[doubtful.position]
                self.ambiguous += 1
            if name and not content and self._reused(before, answers, rows, name, body):
                self.reused += 1
            entry = Entry(position, name, body, content, redelivered=redelivered or early)
            self.entries[position] = entry
            answers.append((position, False, self.stored, False))
            position += 1
        self.prove(proven, now_us)
        self._permit(sorted(at for at, _, permitted, _ in answers if permitted), now_us)
        return answers

    def _find(self, before, name, body, content, redelivered, present):
        if not name:
            return None, None
        same = name, body, content
        found = [e for e in before if (e.name, e.body, e.content) == same and not e.bound]
        ranks = {"none": 0, "doubt": 1, "proven": 2}
        found.sort(key=lambda e: (ranks[e.permit], e.position not in present, e.position))
        if not found:
            return None, None
        first = found[0]
        if content and not redelivered and first.permit != "none":
            return None, None
        sure = not content or first.permit == "none" or (self.drop and first.permit == "doubt")
        return (first, None) if sure else (None, first)

    def _reused(self, before, answers, rows, name, body):
        known = [e.body for e in before if e.name == name and not e.content]
        if not known:
            ids = (row[1] for row in rows[: len(answers)] if row[0] == name and not row[2])
            known = list(ids)[:1]
        return any(other != body for other in known)

    def reject(self, positions):
        """L28: rejects messages; returns how many are forwarded, so not dead letters locally."""
        found = [self.entries[each] for each in positions if each in self.entries]
        there = [entry for entry in found if self.there and entry.permit == "none"]
        for entry in there:
            entry.rejected = True
        return len(there)

    def settle(self, present, now_us):
        """L9, L10, L28: positions that may be acknowledged or rejected now, the latter first."""
        waiting = [e for e in self.entries.values() if e.bound and e.permit == "none"]
        found = [e.position for e in waiting if self.stored or e.position not in present]
        self._permit(sorted(found), now_us)
        return sorted(found, key=lambda each: (not self.entries[each].rejected, each))

    def _permit(self, positions, now_us):
        for position in positions:
            self.entries[position].permit = "sent"
        if positions:
            self.batches.append((now_us, positions))

    def prove(self, proven, now_us):
        """L10: records proven acknowledgements, and forgets entries whose grace is over."""
        before = [entry for entry in self.entries.values() if entry.permit == "proven"]
        fresh_us = 0
        while self.batches and self.proved + len(self.batches[0][1]) <= proven:
            at_us, batch = self.batches.pop(0)
            self.proved += len(batch)
            entries = [self.entries[position] for position in batch]
            if not any(e.position < self.fresh_from or e.redelivered for e in entries):
                self.fresh_proven, fresh_us = True, at_us
            for entry in entries:
                entry.permit = "proven"
                seconds = -(-now_us // SECOND_US) + limits.LINK_ACK_GRACE_S
                entry.until_us = seconds * SECOND_US
        for entry in before:
            if entry.until_us <= fresh_us:
                del self.entries[entry.position]

    def forget(self, now_us, present):
        """L10: forgets entries without a message, or in doubt, after LINK_DOUBT_S."""
        for entry in list(self.entries.values()):
            old = entry.loose_us and entry.loose_us + limits.LINK_DOUBT_S * SECOND_US <= now_us
            gone = entry.position not in present or entry.permit == "doubt"
            if old and gone and self.fresh_proven and not entry.bound:
                del self.entries[entry.position]
