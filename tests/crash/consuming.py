"""Publishers, consumers and faults for the consuming crash test, all drawn from one seed.

Invariant: every actor that decides at random has its own generator, seeded by the run's seed and
its name, so that a seed gives the same decisions again, if not the same instants.
"""

import random
import threading
import time
from contextlib import suppress

import pyarrow as pa

from ackq.client import Admin, Channel, Publisher, close_channels
from ackq.errors import (
    BrokerUnavailableError,
    ClosedError,
    OutcomeUnknownError,
    StaleDeliveryTagError,
)
from tests.crash.harness import messages
from tests.crash.settlements import Delivery, Ledger
from tests.fakes.relay import Relay

DELIVERY_LIMIT = 2
PUBLISHERS = 2
CONSUMERS = 4
# Publishers wait while this many messages are neither accepted nor rejected.
ON_THE_WAY = 3_000
CALM_S = 300
# Longer than a run: on a busy machine, faults may keep a publisher from its broker for minutes.
PATIENT_MS = 3_600_000
OUTCOMES = ["accepted"] * 6 + ["released"] * 2 + ["failed"] * 2 + ["rejected"]
# Errors of the channel's end or renewal, which an application must expect when a broker dies.
ENDS = (ClosedError, BrokerUnavailableError, OutcomeUnknownError, StaleDeliveryTagError)
AROUND_THE_SYNC = ("before_write_segment", "before_sync_data_segment", "after_sync_data_segment")


class Actor(threading.Thread):
    """A thread with a name, a generator and a relay of its own, until the run stops it."""

    def __init__(self, run, name):
        super().__init__(name=name, daemon=True)
        self.run_ = run
        self.ledger = run.ledger
        self.rng = random.Random(f"{run.seed} {name}")
        self.relay = Relay(run.broker.endpoint)

    def run(self):
        try:
            self.act()
        except BaseException as error:  # noqa: BLE001 - the ledger reports any error
            self.ledger.report(f"{self.name} ended with {error!r}")

    @property
    def stopped(self):
        return self.run_.stopping.is_set()


class Publishing(Actor):
    """Publishes batches with confirms, on one publisher throughout the run."""

    def act(self):
        number = 0
        with Publisher(
            self.relay.endpoint, routing_key="work", mandatory=True, retry_total_ms=PATIENT_MS
        ) as publisher:
            while not self.run_.stopping.wait(self.rng.uniform(0, 0.05)):
                if self.ledger.on_the_way > ON_THE_WAY:
                    continue
                names = [f"{self.name}-{number + n:06d}" for n in range(self.rng.randint(1, 60))]
                number += len(names)
                self.ledger.publish(names)
                answer = publisher.publish_batch(messages(names, self.rng.choice([10, 1000])))
                answer.add_done_callback(lambda done, names=names: self._told(done, names))
            publisher.flush(CALM_S)

    def _told(self, answer, names):
        if answer.exception() is None:
            self.ledger.confirm(names)
        elif not isinstance(answer.exception(), OutcomeUnknownError):
            self.ledger.report(f"{self.name} was told {answer.exception()!r}")


class Consuming(Actor):
    """Opens channels one after another, and settles their messages at random."""

    def act(self):
        while not self.stopped:
            with suppress(*self.run_.ends):
                self._live_a_life()

    def _live_a_life(self):
        begun_at = time.monotonic()
        window = self.rng.choice([3, 100, 10_000])
        renewed = []
        with Channel(
            self.relay.endpoint,
            window_messages=window,
            retry_total_ms=5_000,
            reconnect_timeout_ms=self.rng.choice([0, 20_000]),
            on_reconnect=renewed.append,
        ) as channel:
            life = Life(self, channel, self.run_.next_channel(), begun_at)
            for _ in range(self.rng.randint(3, 80)):
                if self.stopped:
                    return
                life.step()
            self.ledger.figures["renewed"] += len(renewed)
            if self.rng.random() < 0.3:
                # It is closed in a hurry, as after a mistake of the application.
                raise ClosedError("enough")


class Life:
    """A consumer's use of one channel; `held` has its unsettled deliveries by tag."""

    def __init__(self, actor, channel, number, begun_at):
        self.ledger = actor.ledger
        self.rng = actor.rng
        self.channel = channel
        self.number = number
        self.begun_at = begun_at
        self.held = {}
        self.messages = {}
        self.consumer = channel.consume(
            "work",
            mode="client",
            outcomes=["failed", "rejected", "released"],
            prefetch=self.rng.choice([1, 10, 300, 0]),
        )

    def step(self):
        """Receives some messages, and settles some that it holds."""
        self.rng.choice([self._receive, self._receive, self._receive_batch, self._pull])()
        self._forget_void()
        settle = self.rng.choice([self._one, self._up_to, self._scattered, self._nothing])
        if self.held:
            settle()

    def _forget_void(self):
        """C17: deliveries from before a renewal of the channel are no longer this consumer's."""
        void = self.channel._state.unsettled.void
        for tag in [each for each in self.held if each <= void]:
            del self.held[tag]
            self.messages.pop(tag, None)

    # --- getting ---

    def _receive(self):
        for _ in range(self.rng.randint(1, 30)):
            message = self.consumer.receive(self.rng.choice([0, 0.05]))
            if message is None:
                return
            self._take_message(message)

    def _pull(self):
        for message in self.channel.get("work", self.rng.randint(1, 50), timeout_s=20):
            self._take_message(message)

    def _receive_batch(self):
        batch = self.consumer.receive_batch(self.rng.randint(1, 200), 0.1)
        if batch is None:
            return
        names = ("message_id", "delivery_count", "redelivered", "delivery_tag")
        columns = (batch.column(name).to_pylist() for name in names)
        for row in zip(*columns, strict=True):
            self._take(*row)

    def _take_message(self, message):
        self._take(
            message.message_id, message.delivery_count, message.redelivered, message.delivery_tag
        )
        self.messages[message.delivery_tag] = message

    def _take(self, name, count, redelivered, tag):
        now = time.monotonic()
        delivery = Delivery(name, count, redelivered, self.number, tag, self.begun_at, now)
        self.held[tag] = delivery
        self.ledger.deliver(delivery)

    # --- settling ---

    def _nothing(self):
        """Settles nothing now, maybe never."""

    def _one(self):
        """Settles one message, by its own method."""
        known = self.messages.keys() & self.held.keys()
        if not known:
            return
        tag = self.rng.choice(sorted(known))
        message = self.messages.pop(tag)
        outcome = self.rng.choice(OUTCOMES)
        methods = {
            "accepted": message.accept,
            "released": message.release,
            "failed": message.fail,
            "rejected": message.reject,
        }
        self._settle([tag], outcome, methods[outcome])

    def _up_to(self):
        """C3: acknowledges everything up to a message."""
        known = sorted(self.messages.keys() & self.held.keys())
        if not known:
            return
        tag = self.rng.choice(known)
        message = self.messages[tag]
        up_to = [each for each in self.held if each <= tag]
        self._settle(up_to, "accepted", lambda: self.channel.acknowledge(message))

    def _scattered(self):
        """Settles a random subset of the held messages in one call."""
        share = self.rng.choice([0.1, 0.5, 0.9])
        tags = [each for each in self.held if self.rng.random() < share]
        if not tags:
            return
        outcome = self.rng.choice(OUTCOMES)
        batch = pa.record_batch([pa.array(tags, pa.int64())], names=["delivery_tag"])
        self._settle(tags, outcome, lambda: self.consumer.settle(batch, outcome))

    def _settle(self, tags, outcome, call):
        deliveries = [self.held.pop(tag) for tag in tags]
        self.ledger.tell(deliveries, outcome, "")
        try:
            answer = call()
        except ENDS:
            self.ledger.tell(deliveries, outcome, "refused")
            raise
        answer.add_done_callback(lambda done: self._told(done, deliveries, outcome))

    def _told(self, answer, deliveries, outcome):
        error = answer.exception()
        if error is None:
            if answer.result() != len(deliveries):
                self.ledger.report(f"{answer.result()} settled of {len(deliveries)}")
            self.ledger.tell(deliveries, outcome, "done")
        elif isinstance(error, ENDS):
            unknown = isinstance(error, OutcomeUnknownError)
            self.ledger.tell(deliveries, outcome, "unknown" if unknown else "refused")
        else:
            self.ledger.report(f"channel {self.number} was told {error!r}")


class Disasters:
    """Kills the broker, cuts and holds connections, and repairs each after a time.

    A new fault waits until something was answered: otherwise, on a busy machine, the clients would
    not recover from one fault before the next, and nothing would be in flight.
    """

    def __init__(self, run, relays):
        self.broker = run.broker
        self.ledger = run.ledger
        self.figures = run.ledger.figures
        self.rng = random.Random(f"{run.seed} disasters")
        self.relays = relays
        self.mends = []  # (time, action)

    def go_on(self, seconds):
        """Injects faults for `seconds`; everything is repaired at the end."""
        end = time.monotonic() + seconds
        pause = threading.Event()
        answers = -1
        while time.monotonic() < end:
            pause.wait(self.rng.uniform(0, 0.6))
            self._mend(time.monotonic())
            if not self.broker.alive():
                self._restart("failpoint")
            elif self.ledger.answers != answers:
                answers = self.ledger.answers
                self.rng.choices(
                    [self._kill, self._arm, self._cut, self._cut_long, self._hold], [2, 1, 5, 1, 3]
                )[0]()
        self._mend(float("inf"))
        self.broker.restart(env={})

    def _mend(self, now):
        due = [each for each in self.mends if each[0] <= now]
        self.mends = [each for each in self.mends if each[0] > now]
        for _, mend in due:
            mend()

    def _kill(self):
        self.broker.kill()
        self._restart("kill")

    def _arm(self):
        """Restarts the broker with a failpoint, at which it dies around a sync."""
        point = f"{self.rng.choice(AROUND_THE_SYNC)}:{self.rng.randint(1, 100)}"
        self.broker.kill()
        self._restart("kill", {"ACKQ_FAILPOINT": point})

    def _restart(self, why, env=None):
        self.figures[why] += 1
        try:
            self.broker.restart(env=env or {})
        except BrokerUnavailableError:  # it died again before it served
            self.figures["failpoint"] += 1
            self.broker.restart(env={})

    def _cut(self):
        relay = self._cut_one()
        self.mends.append((time.monotonic() + self.rng.uniform(0, 1), relay.heal))

    def _cut_long(self):
        """Cuts a connection for longer than the broker waits for a channel (C11)."""
        relay = self._cut_one()
        self.mends.append((time.monotonic() + self.rng.uniform(2, 4), relay.heal))

    def _cut_one(self):
        self.figures["cut"] += 1
        relay = self.rng.choice(self.relays)
        relay.cut()
        return relay

    def _hold(self):
        self.figures["held back"] += 1
        relay = self.rng.choice(self.relays)
        relay.hold()
        self.mends.append((time.monotonic() + self.rng.uniform(0, 3), relay.release))


class Run:
    """One run against a broker.

    Args:
        broker: An embedded broker.
        seed: The seed of all generators.
        disasters: The faults, made of this run and the relays of its actors.
        others: Classes of additional actors.
    """

    def __init__(self, broker, seed, disasters=Disasters, others=()):
        self.broker = broker
        self.seed = seed
        # Errors that may end a consumer's channel.
        self.ends = ENDS
        self._disasters = disasters
        self._others = others
        self.ledger = Ledger(DELIVERY_LIMIT)
        self.stopping = threading.Event()
        self._channels = 0
        self._lock = threading.Lock()

    def next_channel(self):
        """The next channel number."""
        with self._lock:
            self._channels += 1
            self.ledger.figures["channels"] += 1
            return self._channels

    def go(self, seconds):
        """Runs faults for `seconds`, then calm; returns the violations found at the end."""
        with Admin(self.broker.endpoint) as admin:
            admin.declare_queue("dead")
            admin.declare_queue(
                "work",
                dead_letter_queue="dead",
                delivery_limit=DELIVERY_LIMIT,
                redelivery_delay_ms=20,
                redelivery_delay_max_ms=100,
            )
        actors = [
            *(Publishing(self, f"p{number}") for number in range(PUBLISHERS)),
            *(Consuming(self, f"c{number}") for number in range(CONSUMERS)),
            *(other(self, other.__name__) for other in self._others),
        ]
        for each in actors:
            each.start()
        try:
            self._disasters(self, [each.relay for each in actors]).go_on(seconds)
        finally:
            self.stopping.set()
            for each in actors:
                each.join(CALM_S)
                if each.is_alive():
                    self.ledger.report(f"{each.name} did not stop")
                each.relay.close()
            close_channels()
        self._drain("work", self._accept)
        self._drain("dead", self._bury)
        return self.ledger.wrong()

    def _drain(self, queue, take):
        """Takes all messages left in a queue, once their holders have ended."""
        deadline = time.monotonic() + CALM_S
        pause = threading.Event()
        begun_at = time.monotonic()
        with Admin(self.broker.endpoint) as admin, Channel(self.broker.endpoint) as channel:
            number = self.next_channel()
            while True:
                got = channel.get(queue, 5_000)
                take(got, number, begun_at)
                if got:
                    channel.acknowledge(got[-1]).result(CALM_S)
                info = admin.queue(queue)
                if not (info.ready or info.unacked or info.delayed):
                    return
                if time.monotonic() > deadline:
                    self.ledger.report(f"queue '{queue}' is never empty: {info}")
                    return
                pause.wait(0.05)

    def _accept(self, got, number, begun_at):
        now = time.monotonic()
        for message in got:
            delivery = Delivery(
                message.message_id,
                message.delivery_count,
                message.redelivered,
                number,
                message.delivery_tag,
                begun_at,
                now,
            )
            self.ledger.deliver(delivery)
            self.ledger.tell([delivery], "accepted", "done")
        self.ledger.figures["left in the queue"] += len(got)

    def _bury(self, got, _number, _begun_at):
        for message in got:
            cause = message.headers["ackq-dead-cause"]
            count = int(message.headers["ackq-dead-deliveries"])
            self.ledger.bury(message.message_id, cause, count)


def crash(seed, seconds, data):
    """A run on a broker of its own; returns (violations, ledger)."""
    from ackq_broker import embedded

    with embedded(data=data) as broker:
        run = Run(broker, seed)
        return run.go(seconds), run.ledger
