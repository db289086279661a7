"""The oracle: records every message's history, and reports observations that break a rule.

Clients report their requests and answers, in the order in which they happen; the whole world has
one thread, so instants are counted. What depends on the order of unknown outcomes is judged at the
end, message by message (`judge`), and then by groups that are placed all or none.
"""

import heapq
from collections import Counter, defaultdict

from tests.crash.simulation.oracle.history import NEVER, Hold, Message, Operation, Rewind
from tests.crash.simulation.oracle.judge import DEAD, GONE, HOME, Judge

_US = 1000


class Oracle:
    """The recorded histories of a world's messages.

    Args:
        world: Provides the time.
        queues: The rules of each queue, by name.
    """

    def __init__(self, world, queues):
        self.queues = {each.name: each for each in queues}
        self.figures = Counter()
        self.wrongs = []
        self._world = world
        self._clock_jumps = any(fault.kind == "clock" for _, fault in world.faults)
        self._instant = 0
        self._messages = {}
        self._by_body = {}
        self._everywhere = defaultdict(list)
        self._released_from = {}
        self._gaps = False
        self._sequence = 0
        self._rows = {}
        self._attaches = defaultdict(list)
        # The holder's token of each epoch of an incarnation.
        self._epochs = {}
        self._firsts = {}
        self._incarnations = defaultdict(list)
        # What queries know of their leases, by hold.
        self.leases = {}
        self._openings = Counter()
        self._opened_at = {}
        self._begun = {}
        # (time, instant, message) of messages with a time to live, as a heap.
        self._expiries = []
        self._expires_from = {}
        # Batches that an operator dropped: (writer, batch).
        self.dropped = set()
        # Ended channels of other users whose ids a stranger may have opened again.
        self.taken = set()
        # The imported definitions: properties of queues by name, and bindings.
        self.imported = {}
        self.bound = set()

    # --- time ---

    def now(self):
        """The next instant."""
        self._instant += 1
        while self._expiries and self._expiries[0][0] <= self._world.now_us():
            _, _, message = heapq.heappop(self._expiries)
            self._expires_from[id(message)] = self._instant
        return self._instant

    def wrong(self, what):
        """Records a violation that no order of events explains."""
        self.wrongs.append(what)
        self._world.trace("WRONG", what)

    def check(self, holds, what):
        """Records `what` as a violation unless `holds`."""
        if not holds:
            self.wrong(what)

    # --- publishes ---

    def publish(self, name, body, queue, **fields):
        """Records a message about to be published to a queue; `fields` are those of `Message`."""
        message = Message(name, body, self.queues[queue], **fields)
        message.put = Operation("put", self.now())
        self.check((queue, name) not in self._messages, f"K3: {name} goes to {queue} twice")
        self._messages[queue, name] = message
        self._by_body[name] = body
        if message.ttl_ms:
            at_us = self._world.now_us() + message.ttl_ms * _US
            heapq.heappush(self._expiries, (at_us, self._instant, message))
        self.figures["published"] += 1
        return message

    def confirmed(self, message):
        """P4: the message is in its queue, or was."""
        if message.put is None:
            self.wrong(f"P8: {message} was confirmed after it was refused")
        elif not message.put.must:
            message.put.done(self.now())
            self.figures["confirmed"] += 1

    def refused(self, message):
        """P8, P13: the message is in no queue, and will not be."""
        if message.put is not None and message.put.must:
            self.wrong(f"P8: {message} was refused after it was confirmed")
        message.put = None
        self.figures["refused"] += 1

    # --- consumers ---

    def message(self, queue, name, headers=None):
        """The published message that a client found in a queue; None: it was never published."""
        home = (headers or {}).get("ackq-dead-queue", queue)
        found = self._messages.get((home, name))
        if found is None:
            self.wrong(f"I4: {name} is in {queue}, and was never published to {home}")
        return found

    def delivered(self, row, queue, hold, begun):
        """Records a delivery that a client read.

        Args:
            row: As `wire.Row`.
            queue: The queue that it came from.
            hold: Its holder; None: none, as no acks were requested (C10).
            begun: An instant before it was delivered.
        """
        message = self.message(queue, row.name, row.headers)
        if message is None:
            return None
        self.figures["delivered"] += 1
        self.check(row.body == message.body, f"I4: the body of {row.name} is another")
        cause = row.headers.get("ackq-dead-cause", "")
        died_after = int(row.headers.get("ackq-dead-deliveries", 0))
        mark = int(row.headers.get("ackq-rewound", -1))
        self.figures["delivered again after a rewind"] += mark >= 0
        what = (queue, hold, row.count, cause, died_after, mark)
        message.operations.append(Operation("deliver", begun, self.now(), True, what))
        if hold is not None and queue == message.queue.name and row.count == 1:
            self._in_order(message, (hold.owner, queue), row)
        return message

    def _in_order(self, message, where, row):
        """C6, P12: first deliveries to one channel are in the order of their publisher."""
        if not self._ordered(message):
            return
        publisher, number = message.order
        last = self._firsts.get((where, publisher), (-1, ""))
        self.check(
            number > last[0],
            f"P12: {row.name} was delivered first after {last[1]} of the same publisher",
        )
        self._firsts[where, publisher] = (number, row.name)

    def _ordered(self, message):
        """Whether a message still stands at its published place: no redrive has moved it."""
        return message.order is not None and not (message.queue.dead and self.figures["redrives"])

    def settle(self, messages, hold_of, *outcomes, kind="settle"):
        """Records that messages are about to be settled; returns the operations, to be `done`.

        Args:
            messages: The messages to be settled.
            hold_of: The hold of each.
            outcomes: Names of possible outcomes; `later` is a release with a delay.
            kind: `operate` or `resume` where tags may be holes.
        """
        found = []
        for message, hold in zip(messages, hold_of, strict=True):
            operation = Operation(kind, self.now(), what=(hold, *outcomes))
            message.operations.append(operation)
            found.append(operation)
        return found

    def undo(self, operations):
        """Removes the operations of a settlement that had no effect."""
        gone = set(map(id, operations))
        for message in self._messages.values():
            message.operations = [each for each in message.operations if id(each) not in gone]

    def not_accepted(self, row, instant):
        """S5: no channel accepted a row's message for good, answered before this instant."""
        message = self.message(row.queue, row.name, row.headers)
        accepted = message is not None and any(
            each.kind == "settle"
            and each.ret < instant
            and each.what[1:] == ("accepted",)
            and not isinstance(each.what[0].owner, str)  # which is a session's
            for each in message.operations
        )
        self.check(not accepted or message.queue.retains, f"S5: a lease has the accepted {message}")

    def may_release(self, owner, instant):
        """Records the first instant at which an owner may have given back its messages.

        Deliveries to it may never have arrived, so that counts skip some.

        Args:
            owner: The owner of holds.
            instant: The first such instant.
        """
        self._released_from[owner] = min(instant, self._released_from.get(owner, NEVER))
        self._gaps = True

    # --- operators ---

    def everywhere(self, kind, queue, what):
        """Records an operation on a whole queue: a purge, delete or redrive; to be `done`."""
        operation = Operation(kind, self.now(), what=what)
        self._everywhere[queue].append(operation)
        self.figures[f"{kind}s"] += 1
        return operation

    def nothing(self, queue, operation):
        """Removes an operation on a whole queue that had no effect."""
        self._everywhere[queue].remove(operation)

    def may_be_purged(self, queue, since):
        """Whether a purge of a queue may have taken effect after an instant."""
        return any(e.kind == "purge" and e.ret > since for e in self._everywhere[queue])

    def sequence(self, sequence):
        """I1: a journal sequence that was answered is on disk: no later one is lower."""
        self.check(
            sequence >= self._sequence,
            f"I1: the journal has sequence {sequence}, and {self._sequence} was answered before",
        )
        self._sequence = max(self._sequence, sequence)

    # --- sessions ---

    def rows(self, key, rows):
        """K2, S1: a batch that is run again has the same rows."""
        known = self._rows.setdefault(key, rows)
        self.check(known == rows, f"K2: batch {key} read {rows}, and before {known}")

    def without_rows(self, key):
        """S11: a batch that was run without rows never comes to have any."""
        self._rows.setdefault(key, ())

    def in_lease_order(self, rows):
        """S1, P12: a lease has the messages of each queue in their order."""
        lasts = {}
        for row in rows:
            message = self._messages.get((row.queue, row.name))
            if message is None or not self._ordered(message):
                continue
            publisher, number = message.order
            last = lasts.get((row.queue, publisher), (-1, ""))
            self.check(number > last[0], f"P12: {row.name} is leased behind {last[1]}")
            lasts[row.queue, publisher] = (number, row.name)

    def opening(self, session):
        """Records that a session is about to be opened or released: its owner may lose a lease."""
        instant = self.now()
        self._openings[session] += 1
        self._opened_at[session] = instant
        for incarnation in self._incarnations[session]:
            self.may_release(incarnation, instant)
        # An opening without an answer may have leased.
        self._gaps |= self._openings[session] > 1
        return instant

    def opened(self, session, incarnation, begun):
        """S9: a session has an incarnation, which was requested at `begun` or later."""
        self._begun.setdefault(incarnation, begun)
        self._incarnations[session].append(incarnation)

    def begun(self, incarnation):
        """An instant before any lease of an incarnation."""
        return self._begun.get(incarnation, 0)

    def rewinds(self, session, queue, *, retains):
        """S14: records that a session is about to be opened with a rewind, to be `reopened`."""
        owner = (self._incarnations[session] or [""])[-1]
        alone = owner not in self._released_from
        what = Rewind(owner, 0, self._instant, retains, alone)
        return self.everywhere("rewind", queue, what), self._openings[session]

    def not_opened(self, session, instant):
        """Records that the opening of this instant was refused, unless others began since."""
        if instant == self._opened_at[session]:
            for incarnation in self._incarnations[session]:
                if self._released_from.get(incarnation) == instant:
                    del self._released_from[incarnation]
            self._openings[session] -= 1

    def rewound(self, session, operation, openings):
        """S14: the opening was answered."""
        if self._openings[session] > openings + 1:
            operation.what = operation.what._replace(alone=False)
        operation.done(self.now())

    def attached(self, incarnation, token, epoch, called):
        """S3: records that a holder attached after `called`; returns the instant of the answer."""
        answered = self.now()
        self.check(
            self._epochs.setdefault((incarnation, epoch), token) == token,
            f"S3: two readers of {incarnation} have epoch {epoch}",
        )
        self._attaches[incarnation].append((token, called, answered))
        return answered

    def ended(self, session, incarnation, epoch):
        """S8: an operator ended a holder, which began an epoch that nobody holds."""
        if self._openings[session] > 1:
            return  # the epoch may be another incarnation's
        self.check(
            self._epochs.setdefault((incarnation, epoch), b"") == b"",
            f"S8: epoch {epoch} of {incarnation} has a reader, and an operator began it",
        )

    def fenced(self, incarnation, token, attached):
        """S3: whether another holder certainly attached after this holder had its last answer."""
        return any(
            other != token and called > attached for other, called, _ in self._attaches[incarnation]
        )

    # --- the end ---

    def found(self, places):
        """Records, at the end, each message's queue, count and mark, by (first queue, name)."""
        instant = self.now()
        for key, message in self._messages.items():
            seen = places.pop(key, [])
            self.check(len(seen) <= 1, f"I4: {message} is in {len(seen)} places: {seen}")
            queue, count, mark = seen[0] if seen else ("", None, -1)
            place = GONE if not seen else HOME if queue == message.queue.name else DEAD
            message.operations.append(
                Operation("final", instant, instant, True, (place, count, mark))
            )
        for home, name in places:
            self.wrong(f"I4: {name} is left, and was never published to {home}")

    def verdict(self, restarts):
        """The violations, a line each; `found` must have been called before.

        Args:
            restarts: How often the broker restarted.
        """
        wrong = list(self.wrongs)
        groups = defaultdict(list)
        for message in self._messages.values():
            if restarts and not message.survives:
                continue  # lost by a restart, and placed again when it is published again (P10)
            judge = self._judge(message)
            if message.group is not None:
                groups[message.group].append((message, judge))
            if not judge.explains(put=None):
                wrong.append(f"I4: no order of events explains {message}")
        for group, members in groups.items():
            wrong += _torn(group, members)
        return wrong

    def _judge(self, message):
        whole = self._everywhere.get(message.queue.name, [])
        if message.queue.dead:
            whole = whole + self._everywhere.get(message.queue.dead, [])
        message.operations += whole
        return Judge(
            message,
            self._first_release,
            gaps=self._gaps,
            leases=self.leases,
            expires_from=self._expires(message),
        )

    def _expires(self, message):
        """The first instant at which the message may expire (Q3); where clocks jump, any (Q8)."""
        if not message.ttl_ms or message.put is None:
            return NEVER
        if self._clock_jumps:
            return message.put.call
        return self._expires_from.get(id(message), NEVER)

    def _first_release(self, hold: Hold):
        return self._released_from.get(hold.owner, NEVER)


def _torn(group, members):
    """P8, P13, K3: reports a group that must be placed all or none, and was placed in part."""
    if all(message.put is None or message.put.must for message, _ in members):
        some = {message.put is None for message, _ in members}
        if len(some) > 1:
            yield f"P13: {group} was answered for in part"
        return
    for put in (True, False):
        if all(
            judge.explains(put=put) if message.put is not None else not put
            for message, judge in members
        ):
            return
    told = "; ".join(str(message) for message, _ in members)
    yield f"P13, K3: {group} is in its queues in part: {told}"
