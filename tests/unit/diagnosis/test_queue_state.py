"""Q9: each state of a queue has its sentence: holder, duration, pinned bytes, remedy."""

import pytest

from ackq import info
from ackq.diagnosis.finding import Severity
from ackq.diagnosis.queue_facts import QueueFacts
from ackq.diagnosis.queue_state import diagnose, summary

HIDDEN = "hidden"
NOW_US = 1_357_034_400_000_000  # 2013-01-01 10:00:00 UTC
PROBLEM, WARNING, NOTE = Severity.PROBLEM, Severity.WARNING, Severity.NOTE
BESIDE = ("dead_letters", "serving", "sources", "outbound", "denied")


def facts(*, properties=(), holdings=None, broker=None, sessions=(), batches=(), **queue):
    """Facts of queue `q`, durable by default, which `sessions` read.

    A session that is given as its name is not shown to the user.
    """
    rest = {name: queue.pop(name) for name in BESIDE if name in queue}
    return QueueFacts(
        "q",
        info.ServerInfo(now_us=NOW_US, **(broker or {})),
        info.QueueInfo(
            queue="q",
            properties=info.QueueProperties(**{"durable": True, **dict(properties)}),
            sessions=[getattr(each, "session", each) for each in sessions],
            **queue,
        ),
        info.Holdings(**(holdings or {})),
        {each.session: each for each in sessions if each != HIDDEN},
        tuple(batches),
        **rest,
    )


def session(**fields):
    """Session `s`: live, of process 7 on host `h`, with a lease whose rows were read."""
    fields = {
        "live": True,
        "holder": info.Holder(host="h", pid=7, application="app"),
        "leased": 5,
        "fetched": True,
        "query_id": "Q",
        "batch_id": 4,
        "attaches": 1,
        **fields,
    }
    return info.SessionInfo(session="s", **fields)


def lease(**fields):
    """The holding of session `s`: 5 messages for 10 s."""
    fields = {"age_ms": 10_000, "connected": True, **fields}
    return held(session="s", **fields)


def held(**fields):
    fields = {"messages": 5, "payload_bytes": 515, "stored_bytes": 4096, **fields}
    return info.Holding(first_position=3, last_position=7, **fields)


def channel(**fields):
    """The holding of a client's channel: 5 messages for 10 s, recently settling."""
    fields = {"age_ms": 10_000, "quiet_ms": 1_000, "connected": True, **fields}
    return held(channel="h:9", **fields)


def consumer(**fields):
    fields = {"prefetch": 5, "unacked": 5, "connected": True, **fields}
    return info.ConsumerInfo(consumer="c", channel="h:9", **fields)


def found(given, code):
    """The only finding with this code."""
    (finding,) = [each for each in diagnose(given) if each.code == code]
    return finding


def codes(given):
    return [each.code for each in diagnose(given)]


def test_a_queue_that_does_not_exist():
    """Q9, Q7: a non-durable queue may have ended with the restart that the uptime shows."""
    broker = info.ServerInfo(now_us=NOW_US, uptime_ms=90_000)
    (finding,) = diagnose(QueueFacts("it's gone", broker))
    assert (finding.code, finding.severity) == ("queue-missing", PROBLEM)
    assert "declared as not durable" in finding.sentence
    assert "The broker started 1.5 min ago." in finding.sentence
    # The name in the command must be one argument of the shell.
    assert finding.remedy == "ackq queue declare 'it'\"'\"'s gone'"


def test_all_unacked_at_a_consumer_that_is_quiet():
    """Q9, C8: holder, duration and pinned bytes; full prefetch and no settlement."""
    given = facts(
        ready=3,
        unacked=5,
        holdings={
            "holdings": [channel(age_ms=300_000, quiet_ms=290_000)],
            "holding_count": 1,
            "consumers": [consumer()],
        },
    )
    assert found(given, "prefetch-full").severity is PROBLEM
    finding = found(given, "consumer-quiet")
    assert finding.severity is PROBLEM
    assert finding.sentence == (
        "The client 'h:9' holds 5 messages (515 bytes, positions 3 to 7; they keep 4.0 KiB of the "
        "journal), unacked for 5.0 min (since 2013-01-01 09:55:00 UTC); it has settled nothing for "
        "4.8 min. Its prefetch of 5 is used up: it gets no more."
    )
    assert "ready again at once" in finding.remedy


def batch(**fields):
    target = info.BatchTarget(queue="q", rows=10, payload_bytes=2048)
    given = {"writer": "W", "batch_id": 3, "targets": [target], "age_ms": HOUR_MS, **fields}
    return info.BatchInfo(**given)


def staged(**fields):
    return {"staged": 10, "batches": [batch(**fields)]}


def held_by(*holdings, **more):
    return {"holdings": {"holdings": list(holdings), **more}}


def failing(limit, failures, **properties):
    """A message that failed so often, under a limit of deliveries."""
    holdings = {"most_failures": failures, "consumers": [consumer(has_room=True)]}
    return {"properties": {"delivery_limit": limit, **properties}, "holdings": holdings}


def dead_letters_in(overflow):
    """A queue whose dead-letter queue is full."""
    properties = info.QueueProperties(max_length=2, overflow=overflow)
    dead = info.QueueInfo(queue="d", ready=2, properties=properties)
    return {"properties": {"dead_letter_queue": "d"}, "dead_letters": dead}


def bounded(**properties):
    return {"properties": properties}


def link(**fields):
    report = info.OutboundReport(link="l", queue="q", target="t", refused=1, **fields)
    return {"outbound": (report,)}


READY, HOUR_MS = {"ready": 3}, 3_600_000
IDLE = session(live=False, leased=0)
DETACHED = session(live=False, leased=0, detached=True, session_timeout_ms=1_000)
KEPT = {"retained_batches": 1_200, "retained_from_batch": 7, "retained_age_ms": HOUR_MS}
RETAINS = {"sessions": [session(retain_ms=86_400_000, retained_payload_bytes=2048, **KEPT)]}
READING, OFTEN = {"sessions": [session()]}, {"sessions": [session(attaches=4)]}
UNREAD = channel(age_ms=90_000, quiet_ms=90_000)
ROOM, FREE = consumer(unacked=1, has_room=True), consumer(prefetch=1000)
NO_DEAD_LETTER = {"dead_letters": info.QueueInfo()}
DENIED = bounded(dead_letter_queue="d") | {"denied": {"dead_letters"}}
UNSEEN = {"unacked": 5, "sessions": [HIDDEN]}
DROPS = bounded(max_length=3, overflow="drop-head")
COUNTED = {"ready": 1, "unacked": 1, "delayed": 1, "staged": 1}
BYTES = {"payload_bytes": 60, "holdings": {"staged_bytes": 40}}


def alarmed(alarm):
    return {"broker": {"blocked": "5 bytes are left", "alarm": alarm}}


@pytest.mark.parametrize(
    ("given", "code", "severity", "sentence", "remedy"),
    [
        # Q9, C11, C12, K6, Q7, S3: readers with a query or without, a trigger, or a full client.
        ({**READY, "sessions": [IDLE]}, "readers-gone", PROBLEM, "'s', and no query is c", ""),
        (READY | READING | held_by(lease()), "behind-a-batch", NOTE, "", ""),
        ({**READY, "sessions": [session(leased=0)]}, "between-triggers", NOTE, "minMessages", ""),
        (READY | held_by(consumers=[ROOM]), "delivering", NOTE, "", ""),
        (READY | held_by(UNREAD, consumers=[FREE]), "client-does-not-read", PROBLEM, "", ""),
        (held_by(channel(connected=False)), "unacked-at-consumer", NOTE, "connection is cut", ""),
        (held_by(channel()), "unacked-at-consumer", NOTE, "no longer has a consumer on", ""),
        (bounded(durable=False), "not-durable", NOTE, "", ""),
        # Q9, A2: what the user may not see is said to be so.
        (READY | {"sessions": [HIDDEN, IDLE]}, "readers-not-shown", NOTE, "'hidden'. More is", ""),
        (held_by(held(session=HIDDEN)), "lease-not-shown", NOTE, "'hidden' has leased 5 mess", ""),
        ({"denied": {"batches"}}, "batches-not-shown", NOTE, "to observers alone", ""),
        (DENIED, "dead-letter-queue-not-shown", NOTE, "'d' is not shown", ""),
        (READY | UNSEEN, "nothing-stuck", Severity.OK, "of what the", ""),
        # S5, S8, S13: what sessions hold, and what they keep.
        (READING | held_by(lease(age_ms=HOUR_MS)), "lease-long", WARNING, "", ""),
        (OFTEN | held_by(lease()), "lease-attempts", PROBLEM, "attempt 4", "reject s --tags"),
        ({"sessions": [DETACHED]}, "session-detached", NOTE, "", ""),
        ({"sessions": [IDLE]}, "session-idle", NOTE, "", "ackq session release s"),
        (RETAINS, "session-retains", NOTE, "1,200 accepted batches, from batch 7 on, 1.0 h", ""),
        # C13: a message keeps failing, and no limit takes it out; a full dead-letter queue.
        (failing(2, 2), "delivery-limit-without-dead-letters", PROBLEM, "", "import FILE"),
        (failing(2, 1), "delivery-limit-without-effect", WARNING, "", "import FILE"),
        (READY | failing(0, 3), "message-fails-again-and-again", WARNING, "", ""),
        (dead_letters_in("drop-head"), "dead-letter-queue-full", WARNING, "", ""),
        (dead_letters_in("reject-publish"), "dead-letter-queue-full", NOTE, "", ""),
        (dead_letters_in("drop-head"), "dead-letters", NOTE, "", "ackq queue redrive d"),
        # Q3: all messages count for a bound, with drop-head ready ones only.
        (bounded(max_length=4) | COUNTED, "queue-full-refuses", PROBLEM, "are refused", ""),
        (bounded(max_bytes=100) | BYTES, "queue-full-refuses", PROBLEM, "are refused", ""),
        (DROPS | {"ready": 3, "dropped": 9}, "queue-full-drops", WARNING, "9 messages are dr", ""),
        # Q3: when messages expire, and where they go.
        (held_by(next_expiry_ms=60_000), "expiry-ahead", NOTE, "deleted: the next in 1.0 min.", ""),
        ({"expired": 4}, "expired", NOTE, "4 messages expired", ""),
        # K3, K14: staged rows of a writer that is gone, and of one under way.
        (staged(), "staged-and-silent", WARNING, "Batch 3 of 'W' has staged 10 rows (2.0", "W 3"),
        (staged(), "staged-and-silent", WARNING, "7 days", "ackq batch drop W 3"),
        (staged(single=True), "staged-and-silent", WARNING, "a day", ""),
        (staged(edges="a:1,b:1"), "prepared", NOTE, "for the edges a:1,b:1", "drop W 3 --force"),
        (staged(open_stages=2), "staging", NOTE, "", ""),
        (staged(age_ms=5_000), "staging", NOTE, "", ""),
        # P14, O6: the broker takes no publishes.
        (alarmed("disk"), "disk-alarm", PROBLEM, "5 bytes are left", ""),
        (alarmed("memory"), "memory-alarm", PROBLEM, "5 bytes are left", ""),
        (alarmed("draining"), "broker-draining", PROBLEM, "", "ackq broker drain --resume"),
        # L26: a link's present obstacle.
        (link(limited_by="alarm"), "link-out-blocked", WARNING, "", ""),
    ],
)
def test_a_state_has_its_sentence(given, code, severity, sentence, remedy):
    """Q9: one finding with cause and remedy, of its severity."""
    finding = found(facts(**given), code)
    assert finding.severity is severity
    assert sentence in finding.sentence
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"sessions": [session(leased=0)]}, ["queue-empty"]),
        (failing(2, 2, drop_on_limit=True), ["queue-empty"]),
        (failing(2, 2, dead_letter_queue="d") | NO_DEAD_LETTER, ["queue-empty"]),
        (staged(committed=True), ["nothing-stuck"]),
        (bounded(max_length=5) | COUNTED, ["no-consumer", "redelivery-delay"]),
        (bounded(max_bytes=101) | BYTES, ["queue-empty"]),
        (DROPS | {"ready": 2, "unacked": 5}, ["no-consumer"]),
        (link(), ["queue-empty"]),
        (DENIED, ["queue-empty", "dead-letter-queue-not-shown"]),
    ],
)
def test_what_is_as_it_should_be(given, expected):
    """Q9: limits that end a failing message, repetitions, bounds with room, past obstacles."""
    assert codes(facts(**given)) == expected


def test_more_holders_than_are_shown():
    """Q9: holders that are not shown are counted."""
    given = facts(unacked=150, **held_by(*[channel()] * 30, holding_count=2_000))
    assert found(given, "more-holders").sentence.startswith("1,980 more")
    assert codes(given).count("unacked-at-consumer") == 20


def test_a_broker_that_stops_and_a_clock_that_jumped():
    """Q9, Q8: findings on the whole broker come with every queue, even a missing one."""
    given = facts(serving=False, broker={"clock_jump_ms": 7_200_000})
    assert codes(given) == ["broker-stopping", "clock-jump"]
    assert "2.0 h ahead" in found(given, "clock-jump").sentence
    gone = QueueFacts("q", info.ServerInfo(), serving=False)
    assert [each.code for each in diagnose(gone)] == ["queue-missing", "broker-stopping"]


def test_the_summary():
    """The summary shows the queue in one line."""
    given = facts(
        ready=1200, staged=2, payload_bytes=2048, oldest_age_ms=5_000,
        holdings={"oldest_position": 9},
    )  # fmt: skip
    assert summary(given) == (
        "queue 'q': 1,200 ready, 0 unacked, 2 staged; 2.0 KiB; the oldest message is 5 s old, at "
        "position 9"
    )
    assert summary(facts()) == "queue 'q': 0 ready, 0 unacked"
    assert summary(QueueFacts("q", info.ServerInfo())) == "queue 'q' does not exist"
