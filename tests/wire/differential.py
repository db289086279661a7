"""Random programs run on two brokers, which must agree message by message.

A program is a list of steps that Hypothesis draws, and shrinks when the brokers disagree. A step
that meets a difference of `differences.py` is left out, with a comment that names it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.eventually import eventually
from tests.wire.bench import Bench
from tests.wire.brokers.dialect import Channel, Delivery, Dialect, Message, Outcome, Refused
from tests.wire.brokers.streams import Return

CHANNELS = 2
NOBODY = "nobody"
# RabbitMQ counts bodies, ackq also keys and headers: with these sizes both admit two messages.
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "volatile": {"durable": False},
    "short": {"max_length": 2},
    "ring": {"max_length": 2, "overflow": "drop-head"},
    "small": {"max_bytes": 1_000},
    "small ring": {"max_bytes": 1_000, "overflow": "drop-head"},
    "letters": {"dead_letter_queue": "dead"},
    "dead": {},
}
SIZES = (400, 400, 400, 20_000)
# Queues that refuse, and that drop: the brokers differ in what else they count.
REFUSING = frozenset(("short", "small"))
DROPPING = frozenset(("ring", "small ring"))


class Publish(NamedTuple):
    """Publishes messages in a row (queue, size, persistent), in one frame if there are frames."""

    messages: tuple[tuple[str, int, bool], ...]
    mandatory: bool


class Get(NamedTuple):
    """Pulls messages."""

    channel: int
    queue: str
    messages: int
    no_ack: bool


class Consume(NamedTuple):
    """Starts a consumer, if the queue has none."""

    channel: int
    queue: str
    prefetch: int
    no_ack: bool


class Settle(NamedTuple):
    """Settles one delivery that the channel holds, or all up to it."""

    channel: int
    which: int
    outcome: Outcome
    multiple: bool


class SettleAgain(NamedTuple):
    """Settles a tag that is no longer outstanding, which closes the channel."""

    channel: int
    multiple: bool


class Close(NamedTuple):
    """Closes a channel, and opens another one in its place."""

    channel: int


class Purge(NamedTuple):
    """Purges the ready messages of a queue."""

    queue: str


Step = Publish | Get | Consume | Settle | SettleAgain | Close | Purge

_channels = st.integers(0, CHANNELS - 1)
_queues = st.sampled_from(sorted(QUEUES))
_messages = st.tuples(
    st.sampled_from([*sorted(QUEUES), NOBODY]), st.sampled_from(SIZES), st.booleans()
)
_outcomes = st.sampled_from([Outcome.ACCEPTED, Outcome.REJECTED, Outcome.RELEASED])
_publish = st.builds(Publish, st.lists(_messages, min_size=1, max_size=8).map(tuple), st.booleans())
_settle = st.builds(Settle, _channels, st.integers(0, 9), _outcomes, st.booleans())
_rarely = st.one_of(
    st.builds(SettleAgain, _channels, st.booleans()),
    st.builds(Close, _channels),
    st.builds(Purge, _queues),
)
programs = st.lists(
    st.one_of(
        _publish,
        _publish,
        st.builds(Get, _channels, _queues, st.integers(1, 4), st.booleans()),
        st.builds(Consume, _channels, _queues, st.integers(1, 3), st.booleans()),
        _settle,
        _settle,
        _rarely,
    ),
    min_size=2,
    max_size=25,
)


@dataclass
class _Side:
    """A program's run on one broker.

    Attributes:
        seen: The broker's answers and deliveries, step by step, to be compared.
    """

    bench: Bench[Any]
    names: dict[str, str] = field(default_factory=dict)
    channels: list[Channel] = field(default_factory=list)
    held: list[dict[int, str]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    consumers: dict[str, tuple[int, str, bool]] = field(default_factory=dict)
    seen: list[object] = field(default_factory=list)
    bodies: int = 0

    def start(self) -> None:
        self.names = {word: self.bench.name("queue") for word in QUEUES}
        for word, properties in QUEUES.items():
            named = dict(properties)
            if "dead_letter_queue" in named:
                named["dead_letter_queue"] = self.names[named["dead_letter_queue"]]
            self.bench.queue(self.names[word], **named)
        self.publisher = self.bench.publisher()
        for _ in range(CHANNELS):
            self.channels.append(self.bench.channel())
            self.held.append({})
            self.settled.append(0)

    # --- steps ---

    def do(self, step: Step) -> None:
        """Runs one step."""
        getattr(self, type(step).__name__.lower())(step)

    def publish(self, step: Publish) -> None:
        messages = [self._message(step, *each) for each in step.messages]
        before = len(self.publisher.answers.seen)
        numbers = self.publisher.publish_all(*messages)
        answers = self.publisher.answers.all()
        returned = [event.number for event in answers.seen[before:] if isinstance(event, Return)]
        nacked = sorted(set(numbers) & set(answers.nacked))
        self.seen.append(("published", nacked, returned))

    def _message(self, step: Publish, word: str, size: int, persistent: bool) -> Message:  # noqa: FBT001
        self.bodies += 1
        body = str(self.bodies).encode().ljust(size, b".")
        key = self.names.get(word, NOBODY)
        return Message(key, body, mandatory=step.mandatory, persistent=persistent)

    def get(self, step: Get) -> None:
        channel = self.channels[step.channel]
        pulled = channel.get(self.names[step.queue], step.messages, no_ack=step.no_ack)
        self._note(step.channel, step.queue, pulled, hold=not step.no_ack)

    def consume(self, step: Consume) -> None:
        name = self.channels[step.channel].consume(
            self.names[step.queue], prefetch=step.prefetch, no_ack=step.no_ack
        )
        self.consumers[step.queue] = step.channel, name, step.no_ack

    def named(self, step: Settle) -> list[int]:
        """The tags that a settlement covers, the named one last.

        Empty if it would release messages of queues that drop: `test_requeue_drops_nothing`.
        """
        held = self.held[step.channel]
        if not held:
            return []
        last = sorted(held)[step.which % len(held)]
        tags = [tag for tag in sorted(held) if tag == last or (step.multiple and tag < last)]
        drops = any(held[tag] in DROPPING for tag in tags)
        return [] if drops and step.outcome is Outcome.RELEASED else tags

    def settle(self, step: Settle) -> None:
        tags = self.named(step)
        self.channels[step.channel].settle(tags[-1], step.outcome, multiple=step.multiple)
        for tag in tags:
            del self.held[step.channel][tag]
        self.settled[step.channel] = tags[-1]

    def settleagain(self, step: SettleAgain) -> None:
        if not self.settled[step.channel]:
            return
        try:
            self.channels[step.channel].settle(self.settled[step.channel], multiple=step.multiple)
        except Refused as refused:
            self.seen.append(refused.condition)
        else:
            self.seen.append("taken")
        self._replace(step.channel)

    def close(self, step: Close) -> None:
        self.channels[step.channel].close()
        self._replace(step.channel)

    def purge(self, step: Purge) -> None:
        self.seen.append(("purged", self.bench.broker.purge(self.names[step.queue])))

    def _replace(self, channel: int) -> None:
        self.channels[channel] = self.bench.channel()
        self.held[channel] = {}
        self.settled[channel] = 0
        for word, (on, _, _) in list(self.consumers.items()):
            if on == channel:
                del self.consumers[word]

    # --- inspection ---

    def collect(self) -> None:
        """Notes the deliveries received by consumers."""
        for word, (channel, name, no_ack) in self.consumers.items():
            waiting = self.channels[channel].deliveries
            mine = [delivery for delivery in tuple(waiting) if delivery.consumer == name]
            for delivery in mine:
                waiting.remove(delivery)
            if mine:
                self._note(channel, word, mine, hold=not no_ack)

    def _note(self, channel: int, word: str, deliveries: list[Delivery], *, hold: bool) -> None:
        for delivery in deliveries:
            self.seen.append(_told(word, delivery))
            if hold:
                self.held[channel][delivery.tag] = word

    def ready(self) -> dict[str, int]:
        return {word: self.bench.ready(name) for word, name in self.names.items()}

    def holds(self, words: frozenset[str], channel: int | None = None) -> bool:
        """Whether there are unacked messages of these queues, on a channel or on any."""
        held = self.held if channel is None else [self.held[channel]]
        return any(queue in words for tags in held for queue in tags.values())

    def drain(self) -> dict[str, list[object]]:
        """The remaining messages at the end, by queue."""
        return {
            word: [_told(word, d) for d in self.bench.channel().get(name, 1_000, no_ack=True)]
            for word, name in self.names.items()
        }


def _told(word: str, delivery: Delivery) -> tuple[object, ...]:
    death = delivery.death
    number = int(delivery.body.rstrip(b"."))
    told = (word, number, len(delivery.body), delivery.redelivered, delivery.persistent)
    return (*told, death and (death.reason, death.count))


class Pair:
    """Two brokers that run one program."""

    def __init__(self, one: Dialect, other: Dialect) -> None:
        self._sides = [_Side(Bench(dialect, "")) for dialect in (one, other)]
        self._one = self._sides[0]

    def run(self, program: list[Step]) -> None:
        """Runs a program; fails if the brokers disagree."""
        try:
            for side in self._sides:
                side.start()
            for step in program:
                self._do(step)
                self._agree(step)
            for channel in range(CHANNELS):
                self._do(Close(channel))
            self._agree("the end")
            assert self._sides[0].drain() == self._sides[1].drain()
        finally:
            for side in self._sides:
                side.bench.tidy()

    def _do(self, step: Step) -> None:
        step = self._without_differences(step)
        for side in self._sides if step is not None else ():
            side.do(step)

    def _without_differences(self, step: Step) -> Step | None:
        """The part of a step on which both brokers should agree; None if there is none."""
        match step:
            case Publish():
                # Only ackq counts unacked messages: `test_length_counts_unacked_messages`.
                full = {word for word in REFUSING if self._one.holds(frozenset((word,)))}
                left = tuple(message for message in step.messages if message[0] not in full)
                return Publish(left, step.mandatory) if left else None
            case Consume():
                # One consumer per queue: the order of turns is not specified.
                twice = step.queue in self._one.consumers
                return None if twice or (step.queue in REFUSING and not step.no_ack) else step
            case Settle():
                return step if self._one.named(step) else None
            case SettleAgain() | Close():
                # A requeue drops nothing: `test_requeue_drops_nothing`.
                return None if self._one.holds(DROPPING, step.channel) else step
        return step

    def _agree(self, step: object) -> None:
        """Waits until both brokers' answers, deliveries and ready counts agree, twice in a row."""
        try:
            eventually("agreement", self._settled_down, every_s=0.01)
        except AssertionError:
            one, other = ((side.seen[-12:], side.ready()) for side in self._sides)
            raise AssertionError(f"after {step}:\n{one}\n{other}") from None

    def _settled_down(self) -> bool:
        return all(self._alike() for _ in range(2))

    def _alike(self) -> bool:
        ready = [side.ready() for side in self._sides]
        for side in self._sides:
            side.collect()
        one, other = self._sides
        return ready[0] == ready[1] and _in_order(one.seen) == _in_order(other.seen)


def _in_order(seen: list[object]) -> list[object]:
    """The events, sorted, as deliveries to consumers may be noted in another order of queues."""
    return sorted(seen, key=repr)
