"""The books of links: messages published at the remote broker, and their fate in the local one.

`LinkBooks` judges each message by its history, as it does for publishers: where each has an id, it
is stored once. `TallyBooks` counts, where the remote broker cannot distinguish equal messages:
nothing is lost, and no more copies are stored than were counted as ambiguous.
"""

from collections import Counter, defaultdict

from tests.crash.simulation.elsewhere import ACKED, DEAD, LOST
from tests.crash.simulation.oracle.history import Operation
from tests.crash.simulation.oracle.ledger import Oracle

INBOX = "inbox"
_TERMINAL = ("accepted",)


def name_of(body):
    """The name of a message by its body."""
    return body.split(b"|", 1)[0].decode()


class LinkBooks:
    """Reports of links and the remote broker, in a world whose messages have ids.

    Args:
        oracle: Judges the histories.
        settled: A message acknowledged at the remote broker must be settled here (L9).
        rejects_there: A message rejected here may be rejected at the remote broker (L28).

    Attributes:
        elsewhere: The remote broker, once it exists.
        on_told: Called when a link has received an answer whose effect must be on disk.
        allowed: Copies that an operator accepted (L25); `unanswered` counts removals whose answer,
            with the number of copies, never came.
    """

    def __init__(self, oracle, *, settled, rejects_there=False):
        self.oracle = oracle
        self.rejects_there = rejects_there
        self.elsewhere = None
        self.settled = settled
        self.on_told = lambda: None
        self.epochs = {}
        self.told = Counter()
        self.seen = defaultdict(Counter)
        self.allowed = self.unanswered = 0

    def published(self, name, body, number):
        """Records a message about to be published at the remote broker."""
        order = ("there", number) if not self.elsewhere.rules.overlaps else None
        self.oracle.publish(name, body, INBOX, order=order, foreign=self.rejects_there)

    def opened(self, incarnation, epoch, process):
        """L1: one process runs the link in an epoch."""
        self.oracle.check(
            self.epochs.setdefault((incarnation, epoch), process) is process,
            f"L1: two processes have epoch {epoch} of a link",
        )

    def stored(self, bodies):
        """L5: answered deliveries: their messages are in the local broker, or were."""
        for body in bodies:
            message = self.oracle.message(INBOX, name_of(body))
            if message is not None:
                self.oracle.confirmed(message)
        self.oracle.figures["link deliveries"] += len(bodies)
        self.on_told()

    def acknowledging(self, message, *, rejected):
        """L9, L28: a delivery is about to be acknowledged, or rejected, at the remote broker."""
        self.oracle.figures["link acknowledgements"] += 1
        if self.settled:
            found = self.oracle.message(INBOX, message.name)
            instant = self.oracle.now()
            kind = "rejected_there" if rejected else "acknowledged"
            found.operations.append(Operation(kind, instant, instant, True))
            self.oracle.figures["link rejections"] += rejected

    def permitted(self, incarnation, count):
        """L10: the link received `count` more permits."""
        self.told[incarnation] += count
        self.on_told()

    def look(self, info, told_before):
        """Checks a link's figures, requested when `told_before` permits had been received."""
        self.oracle.check(
            info.permitted >= told_before,
            f"L10: {told_before} permits were told, and {info.permitted} are on the disk",
        )
        seen = self.seen[info.incarnation]
        for name in ("taken", "stored", "permitted", "proven", "ambiguous", "epoch"):
            value = getattr(info, name)
            self.oracle.check(
                value >= seen[name], f"L26: {name} of a link was {seen[name]}, and is {value}"
            )
            seen[name] = value

    def removing(self):
        """L25: an operator is about to remove the link, whatever it holds."""
        self.unanswered += 1

    def removed(self, answer):
        """L25: the answer to a removal says how many messages may be doubled."""
        self.unanswered -= 1
        self.allowed += answer.held + answer.unproven

    def ending(self, info):
        """L9: with the remote queue empty, the link holds only messages that the remote removed."""
        gone = sum(each.state in (DEAD, LOST) for each in self.elsewhere.messages)
        self.oracle.check(
            info.held <= gone or not self.settled,
            f"L9: the link holds {info.held}, and {gone} are gone there",
        )

    def close(self):
        """Checks that messages confirmed and acknowledged at the remote broker are or were here."""
        left = self.elsewhere.left()
        self.oracle.check(not left, f"L9, L10: {left} are not acknowledged there")
        for message in self.elsewhere.messages:
            if message.confirmed and message.state == ACKED:
                self._must_be_here(message)

    def _must_be_here(self, message):
        found = self.oracle.message(INBOX, message.name)
        if not found.put.must:
            found.put.done(self.oracle.now())

    def verdict(self):
        """The violations that the oracle does not find."""
        return []


class TallyOracle(Oracle):
    """An oracle that counts the inbox's messages by name."""

    def __init__(self, world, queues):
        super().__init__(world, queues)
        self.asked = defaultdict(list)
        self.left = Counter()

    def message(self, queue, name, headers=None):
        """As `Oracle.message`; a message of the inbox has no history."""
        if queue == INBOX:
            return None
        return super().message(queue, name, headers)

    def delivered(self, row, queue, hold, begun):
        """As `Oracle.delivered`."""
        if queue != INBOX:
            return super().delivered(row, queue, hold, begun)
        self.figures["delivered"] += 1
        return row.name

    def settle(self, messages, hold_of, *outcomes, kind="settle"):
        """As `Oracle.settle`; the inbox's messages are names."""
        if not messages or not isinstance(messages[0], str):
            return super().settle(messages, hold_of, *outcomes, kind=kind)
        found = [Operation(kind, self.now(), what=outcomes) for _ in messages]
        for name, operation in zip(messages, found, strict=True):
            if set(outcomes) & set(_TERMINAL):
                self.asked[name].append(operation)
        return found

    def found(self, places):
        """As `Oracle.found`."""
        for key in [key for key in places if key[0] == INBOX]:
            self.left[key[1]] = len(places.pop(key))
        super().found(places)


class TallyBooks(LinkBooks):
    """Reports of links and the remote broker, in a world of equal messages.

    Args:
        oracle: A `TallyOracle`.
        settled: As in `LinkBooks`.
        by_content: Origin keys are made of contents; otherwise of ids, or there are none.
        keyless: No message is recognised (L2).
    """

    def __init__(self, oracle, *, settled, by_content=True, keyless=False):
        super().__init__(oracle, settled=settled)
        self.by_content = by_content
        self.names = Counter()
        self.acknowledged = Counter()
        self.keyless = keyless

    def published(self, name, body, number):
        """As in `LinkBooks`."""
        del body, number
        self.names[name] += 1

    def ending(self, info):
        """Checks nothing: a copy of an acknowledged message may be held."""

    def stored(self, bodies):
        """As in `LinkBooks`."""
        self.oracle.figures["link deliveries"] += len(bodies)
        self.on_told()

    def acknowledging(self, message, *, rejected):
        """L9: no more copies are acknowledged at the remote broker than may be settled here."""
        self.oracle.figures["link acknowledgements"] += 1
        self.oracle.check(not rejected, f"L28: {message} is rejected there")
        self.acknowledged[message.name] += 1
        if self.settled and self.by_content:
            acknowledged, asked = self.acknowledged[message.name], self.oracle.asked[message.name]
            self.oracle.check(
                acknowledged <= len(asked),
                f"L9: {acknowledged} of {message.name} are acknowledged, {len(asked)} settled",
            )

    def close(self):
        """As in `LinkBooks`."""
        left = self.elsewhere.left()
        self.oracle.check(not left, f"L9, L10: {left} are not acknowledged there")

    def verdict(self):
        """L7: reports lost messages, and more doubled messages than are allowed."""
        there, dead = Counter(), Counter()
        for message in self.elsewhere.messages:
            there[message.name] += message.confirmed
            dead[message.name] += message.state == DEAD
        wrong, doubled = [], 0
        for name in self.names:
            asked = self.oracle.asked[name]
            certain = sum(each.must for each in asked) + self.oracle.left[name]
            most = len(asked) + self.oracle.left[name]
            if most + dead[name] < there[name]:
                wrong.append(f"L9: {there[name]} of {name} were confirmed there, and {most} came")
            doubled += max(0, certain - self.names[name])
        self.oracle.figures["link doubled"] += doubled
        allowed = self.allowed + self.elsewhere.unmarked
        allowed += sum(seen["ambiguous"] for seen in self.seen.values())
        if self.keyless:
            allowed += self.elsewhere.again
        if doubled > allowed and not self.unanswered:
            wrong.append(f"L7: {doubled} were doubled, and {allowed} may be")
        return wrong
