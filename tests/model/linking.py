"""Models the surroundings of a link: remote broker, link process, local consumer; L1 to L11.

The remote broker is a queue in the order of its messages. It delivers up to a window, and applies
acknowledgements in the order in which they were sent, without an answer. At a cut it has applied
any first part of those on their way; the other messages are redelivered at their old places, marked
as redelivered. The process behaves as designed: it stores deliveries, acknowledges those that it
has a permit for, and calls proven what the window proves. A local consumer accepts messages in any
order, or rejects them where rejections are forwarded: then the remote broker keeps them as dead
letters.

Faults: the remote connection is cut; an answer of the local broker is lost, so that the process
opens again and sends again; the process dies; it is thought dead, continues next to its successor,
and is fenced; the local broker dies; the remote broker dies and takes back what it had applied; the
local broker's disk is lost, or an old copy of it is served. Minutes and days pass.
"""

from collections import Counter
from typing import NamedTuple

from ackq.errors import AckqError, FencedError
from tests.model.edge import NOW_US, Edge

MINUTE_US, DAYS_US = 62_000_000, 2 * 24 * 3600 * 1_000_000


class Message(NamedTuple):
    """A message of the remote broker; `seen` when it was delivered before."""

    number: int
    body: str
    seen: bool = False


class Process(NamedTuple):
    """A link's process, with its remote connection.

    Attributes:
        open: Its stream to the local broker is open; else it opens first, and asks for its permits.
        connected: It consumes from the remote broker.
        came: The deliveries of the subscription.
        where: The positions of the answered deliveries; `known`: the positions of those after them
            that the local broker has stored, as it reported at the last open.
        sent: The deliveries that it has settled, in that order; the first `applied` are applied.
        rejects: The deliveries of `sent` that it has rejected.
        gone: The deliveries whose message a late acknowledgement removed (`numbering`).
    """

    token: int
    epoch: int = 0
    subscription: int = 0
    open: bool = False
    connected: bool = False
    came: tuple[Message, ...] = ()
    where: tuple[int, ...] = ()
    known: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    rejects: frozenset[int] = frozenset()
    applied: int = 0
    gone: frozenset[int] = frozenset()

    @property
    def unacked(self):
        """The deliveries whose acknowledgement is not applied."""
        return [n for n in range(len(self.came)) if n not in self.sent[: self.applied]]


class World(NamedTuple):
    """A state of the model. `stored` has bodies by position, `taken` those that ended locally.

    Where rejections are forwarded, `accepted` and `dead` are the bodies by the outcome that the
    remote broker applied. `recent` is what the remote broker may take back, with whether it was
    rejected; `copy` is an old local broker with what it had stored. `doubtful` is set when the
    local broker lost state: then doubles are right. `late` has messages whose acknowledgement is on
    its way since a cut (`numbering`).
    """

    edge: bytes
    waiting: tuple[Message, ...]
    process: Process
    zombie: Process | None = None
    stored: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    recent: tuple[tuple[Message, bool], ...] = ()
    copy: tuple[bytes, tuple[str, ...]] | None = None
    late: tuple[Message, ...] = ()
    faults: tuple[str, ...] = ()
    doubtful: bool = False
    stuck: str = ""


class Linking:
    """A link with all its rules. `faults` bounds each kind of fault; a missing kind never happens.

    Args:
        edge: The rules, and the link's options.
        bodies: Bodies of the remote messages, in their order.
        window: Bound of unacknowledged deliveries.
        together: Bound of all faults together.
    """

    def __init__(self, edge=None, bodies="aab", window=2, together=2, **faults):
        self.broker = edge or Edge()
        self.bodies = bodies
        self.window = window
        self.together = together
        self.faults = faults

    def first(self, _messages):
        """The first world: nothing was delivered yet."""
        there = tuple(Message(number, body) for number, body in enumerate(self.bodies))
        return World(self.broker.first("history"), there, Process(0))

    def events(self, world):
        """Yields (event, world after it) for every event that may happen next."""
        steps = [(what, after) for what, after in self._steps(world) if after != world]
        yield from steps
        if not steps and not self.finished(world):
            yield "nothing moves", world._replace(stuck="the link does not go on")
        yield from self._faults(world)

    def finished(self, world):
        """Whether no message is left in the remote broker, on its way, or in the local queue."""
        roles = [process for process in (world.process, world.zombie) if process is not None]
        there = world.waiting or any(process.unacked for process in roles)
        return not there and not self.broker.ready(world.edge)

    # --- steps ---

    def _steps(self, world):
        for role in ("process", "zombie"):
            process = getattr(world, role)
            if process is None:
                continue
            for what, after in self._process_steps(world, role, process):
                yield f"{role}: {what}", after
        for position in self.broker.ready(world.edge):
            body = world.stored[position - 1]
            taken = tuple(sorted((*world.taken, body)))
            edge = self.broker.accept(world.edge, position)
            yield (
                f"the consumer accepts {body} at {position}",
                world._replace(edge=edge, taken=taken),
            )
            if self.broker.there:
                edge, buried = self.broker.reject(world.edge, position)
                taken = taken if buried else world.taken
                yield (
                    f"the consumer rejects {body} at {position}",
                    world._replace(edge=edge, taken=taken),
                )
        for passes, time_us in (("a minute passes", MINUTE_US), ("two days pass", DAYS_US)):
            if world.zombie is None and world.process.open and world.process.connected:
                later = world._replace(recent=())
                yield passes, self._permit(later, "process", world.process, NOW_US + time_us)[1]

    def _process_steps(self, world, role, process):
        if not process.open:
            yield self._open(world, role, process)
            return
        if not process.connected:
            yield self._subscribe(world, role, process)
            return
        for message, rest in self._deliverable(world):
            if len(process.unacked) < self.window:
                came = process._replace(came=(*process.came, message))
                yield (
                    f"{message.body}{message.number} is delivered",
                    world._replace(waiting=rest, **{role: came}),
                )
        if process.applied < len(process.sent):
            yield "an acknowledgement is applied", self._apply(world, role, process, 1)
        new = len(process.came) - len(process.where)
        for count in {1, new} if new else ():
            yield self._store(world, role, process, count)
        yield self._permit(world, role, process)

    def _deliverable(self, world):
        """The messages that may be delivered next, each with those that are left then."""
        if world.waiting:
            yield world.waiting[0], world.waiting[1:]

    def _open(self, world, role, process):
        edge, opened = self.broker.open(world.edge, process.token)
        if isinstance(opened, AckqError):
            return self._ends(world, role, process, opened)
        going_on = opened.subscription == process.subscription != 0 and process.connected
        process = process._replace(open=True, epoch=opened.epoch)
        world = world._replace(edge=edge, **{role: process})
        if not going_on:
            return "opens, to consume anew", self._cut(world, role, process)
        runs = {
            run.first_number + row: run.first_position + row
            for run in opened.runs
            for row in range(run.rows)
        }
        edge, again = self.broker.permit(world.edge, self._said(process), again=True)
        numbers = {position: number - 1 for number, position in runs.items()}
        told = [numbers[position] for position in again.positions.tolist()]
        known = tuple(runs[n] for n in range(len(process.where) + 1, opened.next_number))
        no = [numbers[position] for position in again.rejected]
        sent = _with(process, told, no)._replace(known=known)
        return "opens, and goes on", world._replace(edge=edge, **{role: sent})

    def _subscribe(self, world, role, process):
        edge, reply = self.broker.subscribe(world.edge, process.epoch)
        if isinstance(reply, AckqError):
            return self._ends(world, role, process, reply)
        anew = Process(process.token, process.epoch, reply, open=True, connected=True)
        return "consumes", world._replace(edge=edge, **{role: anew})

    def _store(self, world, role, process, count):
        first = len(process.where)
        rows = process.came[first : first + count]
        edge, reply = self.broker.store(world.edge, self._said(process), first + 1, rows)
        what = f"stores {''.join(row.body + str(row.number) for row in rows)}"
        if isinstance(reply, AckqError):
            return self._ends(world, role, process, reply)
        answers = [
            (run.first_position + row, run.matched, run.permitted, run.rejected)
            for run in reply.runs
            for row in range(run.rows)
        ]
        permitted, rejected = (
            [first + row for row, answer in enumerate(answers) if answer[said]] for said in (2, 3)
        )
        answered = _with(process, permitted, rejected)._replace(
            where=(*process.where, *(position for position, *_ in answers)),
            known=process.known[count:],
        )
        stored = world.stored + tuple(
            row.body
            for row, (position, *_) in zip(rows, answers, strict=True)
            if position > len(world.stored)
        )
        return what, world._replace(edge=edge, stored=stored, **{role: answered})

    def _permit(self, world, role, process, now_us=NOW_US):
        edge, reply = self.broker.permit(world.edge, self._said(process), now_us=now_us)
        if isinstance(reply, AckqError):
            return self._ends(world, role, process, reply)
        where = process.where + process.known
        positions = [position for position in reply.positions.tolist() if position in where]
        told = [where.index(position) for position in positions]
        no = [where.index(position) for position in positions if position in reply.rejected]
        sent = _with(process, told, no)
        what = f"acknowledges {[number + 1 for number in told]}"
        return what, world._replace(edge=edge, **{role: sent})

    def _said(self, process):
        """Epoch, subscription and proof of a call; a full window proves older acknowledgements."""
        proven = min(max(len(process.came) - self.window, 0), len(process.sent))
        last = process.sent[proven - 1] + 1 if proven else 0
        return process.epoch, process.subscription, proven, last

    def _apply(self, world, role, process, count):
        """The remote broker applies the next acknowledgements."""
        numbers = process.sent[process.applied : process.applied + count]
        done = tuple((process.came[number], number in process.rejects) for number in numbers)
        if "returns" in self.faults:
            world = world._replace(recent=world.recent + done)
        if self.broker.there:
            ends = {"accepted": [], "dead": []}
            for message, rejected in done:
                ends["dead" if rejected else "accepted"].append(message.body)
            more = {name: tuple(sorted((*getattr(world, name), *ends[name]))) for name in ends}
            world = world._replace(**more)
        return world._replace(**{role: process._replace(applied=process.applied + count)})

    def _ends(self, world, role, process, error):
        """The process is refused: it subscribes again, or ends when it was fenced."""
        world = self._cut(world, role, process)
        if isinstance(error, FencedError):
            left = None if role == "zombie" else Process(world.process.token + 1)
            return "is fenced, and ends", world._replace(**{role: left})
        return f"consumes anew: {error.code}", world

    def _cut(self, world, role, process):
        """The remote connection of a process ends: unacknowledged messages are redelivered."""
        again = [self._seen(process.came[number]) for number in process.unacked]
        cut = Process(process.token, process.epoch, process.subscription, process.open)
        return world._replace(waiting=_back(world.waiting, again), **{role: cut})

    def _seen(self, message):
        """The message as it is redelivered; with an id the redelivered mark does not matter."""
        return message._replace(seen=self.broker.keys == "content")

    # --- faults ---

    def _faults(self, world):
        counts = Counter(world.faults)
        if len(world.faults) >= self.together:
            return
        for name, most in self.faults.items():
            if counts[name] < most:
                marked = world._replace(faults=tuple(sorted((*world.faults, name))))
                yield from getattr(self, f"_{name}")(marked)

    def _cuts(self, world):
        process = world.process
        if process.connected and process.came:
            for what, after in self._ways_applied(world):
                yield f"a cut{what}", self._cut(after, "process", after.process)

    def _ways_applied(self, world):
        left = len(world.process.sent) - world.process.applied
        for count in range(left + 1):
            what = f", {count} of {left} acknowledgements applied" if left else ""
            yield what, self._apply(world, "process", world.process, count)

    def _answers(self, world):
        """The local broker has done a call, but its stream ends before the answer arrives."""
        if not world.process.open:
            return
        for what, after in self._process_steps(world, "process", world.process):
            if after.edge != world.edge:
                closed = world.process._replace(open=False)
                lost = world._replace(edge=after.edge, stored=after.stored, process=closed)
                yield f"process: {what}; the answer is lost", lost

    def _deaths(self, world):
        for what, after in self._ways_applied(world):
            gone = self._cut(after, "process", after.process)
            yield f"the process dies{what}", gone._replace(process=_next(world))

    def _zombies(self, world):
        if world.zombie is None and world.process.connected:
            split = world._replace(zombie=world.process, process=_next(world))
            yield "the process is thought dead, and another begins", split

    def _restarts(self, world):
        closed = world.process._replace(open=False)
        zombie = world.zombie and world.zombie._replace(open=False)
        edge = self.broker.start(world.edge)
        yield "the edge dies", world._replace(edge=edge, process=closed, zombie=zombie)

    def _returns(self, world):
        process = world.process
        if not world.recent or world.zombie is not None:
            return
        ways = [("", world)]
        if process.open and process.connected:
            later = self._permit(world, "process", process, NOW_US + MINUTE_US)[1]
            ways.append((" for minutes", later))
        for how, after in ways:
            gone = self._cut(after, "process", after.process)
            back = [self._seen(message) for message, _ in after.recent]
            for name, dead in (("accepted", False), ("dead", True)):
                undone = Counter(message.body for message, no in after.recent if no is dead)
                left = Counter(getattr(gone, name)) - undone
                gone = gone._replace(**{name: tuple(sorted(left.elements()))})
            yield (
                f"the other broker dies{how}, and takes back what it applied",
                gone._replace(waiting=_back(gone.waiting, back), recent=()),
            )

    def _losses(self, world):
        closed = world.process._replace(open=False)
        yield (
            "the edge is lost",
            world._replace(
                edge=self.broker.first("lost"), stored=(), process=closed, doubtful=True
            ),
        )

    def _copies(self, world):
        if world.copy is None:
            faults = list(world.faults)
            faults.remove("copies")
            copied = world._replace(copy=(world.edge, world.stored), faults=tuple(faults))
            yield "the edge is copied", copied
            return
        edge, stored = world.copy
        closed = world.process._replace(open=False)
        yield (
            "the copy is served, and accepted",
            world._replace(
                edge=self.broker.served(edge), stored=stored, process=closed, doubtful=True
            ),
        )


def flaw(linking):
    """Returns a judge of worlds: lost, doubled, accepted by the remote broker alone, or stuck."""
    published = Counter(linking.bodies)

    def judge(edge, world, _names):
        if world.stuck:
            return world.stuck
        taken = Counter(world.taken)
        for body, count in Counter(world.accepted).items():
            if count > taken[body]:
                return f"{body} is accepted there, and was not here"
        taken += Counter(world.dead)
        allowed = edge.ambiguous(world.edge)
        for body in sorted(published):
            if not world.doubtful and taken[body] > published[body] + allowed:
                return f"{body} is doubled"
        if linking.finished(world):
            for body in sorted(published):
                if taken[body] < published[body]:
                    return f"{body} is lost"
        return ""

    return judge


def _with(process, numbers, rejected):
    """The process after it has settled those deliveries that it had not yet, and rejected some."""
    new = tuple(number for number in numbers if number not in process.sent)
    rejects = process.rejects.union(number for number in rejected if number in new)
    return process._replace(sent=process.sent + new, rejects=rejects)


def _back(waiting, again):
    """Puts redelivered messages back among the waiting ones, at their old places."""
    return tuple(sorted((*waiting, *again)))


def _next(world):
    zombie = world.zombie.token if world.zombie is not None else 0
    return Process(max(world.process.token, zombie) + 1)
