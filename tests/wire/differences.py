"""Differences of RabbitMQ from the rules, each with the reason why it stays.

Invariant: the tables are exact. A scenario checks that the broker behaves as its entry says, so a
difference that disappeared, or changed, fails the scenario.
"""

from __future__ import annotations

from typing import NamedTuple

RABBITMQ = "rabbitmq"


class Difference(NamedTuple):
    """A behaviour of RabbitMQ that differs from a rule.

    Attributes:
        aspect: The aspect that the scenario compares.
        behaviour: The broker's behaviour.
        reason: The rule that is not kept, and why it says otherwise.
    """

    aspect: str
    behaviour: object
    reason: str

    @property
    def rule(self) -> str:
        """The rule that is not kept."""
        return self.reason.partition(":")[0]


# By the scenario that shows it.
DIFFERENCES: dict[str, Difference] = {
    "test_publish_to_a_missing_exchange": Difference(
        "answer to a publish to a missing exchange",
        "not_found",
        "P7: RabbitMQ closes the channel and leaves every unanswered publish on it unanswered; a"
        " nack tells of the one message (P3).",
    ),
    "test_nack_says_why": Difference(
        "reason of the nack",
        {1: None},
        "P8: AMQP's nack has no field for it; P8 wants the reason.",
    ),
    "test_nacked_is_in_no_queue": Difference(
        "copies in the queue that had room",
        1,
        "P8: RabbitMQ routes to each queue by itself; by P8 a nacked message is nowhere, so that"
        " publishing it again can double it nowhere.",
    ),
    "test_transaction_routes_at_its_commit": Difference(
        "messages for a queue that was bound before the commit",
        [],
        "P13: RabbitMQ routes as it gets a publish; by P13 what is rolled back was never looked"
        " at.",
    ),
    "test_blocked": Difference(
        "a publish while blocked is nacked",
        False,
        "P14: RabbitMQ stops reading the connection, and its consumers' acks with it; by P8 and"
        " P14 the broker tells the publisher, and consumers still settle their messages.",
    ),
    "test_released_does_not_count": Difference(
        "releases that a limit of one allows",
        2,
        "C4: AMQP has one nack with requeue for both, so RabbitMQ's quorum queues count every"
        " return; C4 has RELEASED for what is nobody's failure.",
    ),
    "test_delivery_count": Difference(
        "delivery counts",
        [None, None, None],
        "C7: RabbitMQ's classic queues keep only the redelivered mark; C7 counts in every queue.",
    ),
    "test_provenance": Difference(
        "names of the headers of a dead letter",
        ["x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"],
        "C13: RabbitMQ nests tables and arrays in headers; ours are text, as Spark's map column"
        " has them, and name the position and the deliveries too (C13).",
    ),
    "test_dropped_from_the_head": Difference(
        "dead letters of a queue that drops its head",
        [b"a", b"b"],
        "C13: RabbitMQ dead-letters what it drops (reason maxlen); by Q3 drop-head drops, or the"
        " bound would only move the messages to where there is none.",
    ),
    "test_dead_lettering_ignores_reject_publish": Difference(
        "messages in the full dead-letter queue",
        [b"full"],
        "C13: RabbitMQ loses a dead letter that its target refuses; by C13 dead-lettering always"
        " succeeds.",
    ),
    "test_dead_letter_target_is_gone": Difference(
        "letters in the built-in dead-letter queue",
        [],
        "C13: RabbitMQ loses a dead letter whose target is gone; by C13 dead-lettering always"
        " succeeds.",
    ),
    "test_limit_without_a_dead_letter_queue": Difference(
        "failures that a limit of one allows",
        2,
        "C13: RabbitMQ drops at the limit when there is no dead-letter queue; by C13 only a queue"
        " that was declared so does.",
    ),
    "test_expiry_behind_a_message_that_stays": Difference(
        "ready messages after the second of two expired",
        2,
        "Q3: RabbitMQ looks for expired messages at the head only; by Q3 expiry is a record of its"
        " own time.",
    ),
    "test_length_counts_unacked_messages": Difference(
        "nacked with one ready and one unacked message of two",
        0,
        "Q3: RabbitMQ's length is the ready messages; by Q3 what may come back has its room kept.",
    ),
    "test_requeue_drops_nothing": Difference(
        "messages after the requeue",
        [b"c", b"d"],
        "Q3: RabbitMQ applies the bound to returns too, and drops the oldest; by Q3 a requeue"
        " never drops.",
    ),
    "test_bytes_count_keys_and_headers": Difference(
        "messages of 400 bytes with 500 bytes of headers in 1,000 bytes",
        2,
        "Q3: RabbitMQ counts bodies alone; by Q3 the bytes are those that a message takes, so that"
        " a bound holds what it says.",
    ),
    "test_delete_refuses_a_queue_with_unacked_messages": Difference(
        "a queue with an unacked message is not deleted",
        False,
        "Q4: RabbitMQ's `if-unused` looks at consumers alone; by Q4 what is held keeps its queue,"
        " as its holder has to settle it.",
    ),
    "test_delete_of_a_missing_queue": Difference(
        "the delete of a queue that is not there is refused",
        False,
        "Q4: RabbitMQ's delete is idempotent; by Q4 it is an error, as the name is misspelt more"
        " often than the queue is gone.",
    ),
    "test_rejected_after_a_forced_delete": Difference(
        "dead letters of a queue that was deleted",
        [],
        "Q4: RabbitMQ loses what is held of a queue that is deleted; by Q4 and C13 a rejection"
        " still makes a dead letter.",
    ),
    "test_any_name_may_begin_with_amq": Difference(
        "a queue named amq.something is declared",
        False,
        "Q1: RabbitMQ reserves `amq.` for what it makes itself; by Q1 only `ackq.` is the"
        " broker's.",
    ),
    "test_delete_refuses_a_dead_letter_target": Difference(
        "a dead-letter target is not deleted",
        False,
        "Q4: RabbitMQ's dead-letter target is a name that need not exist; by Q4 the target is in"
        " use.",
    ),
    "test_restart": Difference(
        "which of four messages are marked as redelivered",
        [True, True, True, False],
        "Q7: RabbitMQ does not record deliveries, so after a restart it marks all that was there;"
        " by Q7 delivery counts survive.",
    ),
}

# Rules that RabbitMQ has nothing to be compared with, each with the reason.
ABSENT: dict[str, str] = {
    "P10": "no publisher ids and no de-duplication: a retransmission is another message",
    "C5": "outcomes are not declared",
    "C11": "no transport acks of its own: TCP, and a cut connection ends its channels",
    "C14": "no redelivery delay",
    "C15": "settlements have no answer",
    "C17": "a client library's matter: some of them make consumers again by themselves",
    "Q5": "no browse: a get and a requeue mark the message as redelivered",
    "Q6": "no redrive: a shovel (a plugin) copies and acks",
    "Q8": "time and history are the operator's matter",
    "Q9": "a queue's unacked messages are counted, and not said to be whose",
}


class Differences:
    """The entry of one scenario on one broker, if any."""

    def __init__(self, broker: str, scenario: str) -> None:
        self._listed = DIFFERENCES.get(scenario) if broker == RABBITMQ else None
        self._seen = 0

    def expect(self, aspect: str, actual: object, by_rule: object) -> None:
        """Asserts the rule's value, or exactly the one listed for this broker."""
        entry = self._listed
        if entry is None or entry.aspect != aspect:
            assert actual == by_rule, f"{aspect}: {actual!r}; by rule: {by_rule!r}"
            return
        assert actual != by_rule, f"{RABBITMQ} keeps the rule now: remove {entry}"
        assert actual == entry.behaviour, f"{aspect}: {actual!r}; listed: {entry.behaviour!r}"
        self._seen += 1

    def finished(self) -> None:
        """Fails if the aspect that is listed was not checked, once."""
        assert self._seen == (self._listed is not None)
