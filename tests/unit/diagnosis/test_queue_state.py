"""Q9: each state of a queue has its sentence: holder, duration, pinned bytes, remedy."""

import pytest

from ackq.diagnosis.finding import Severity
from ackq.diagnosis.queue_facts import QueueFacts
from ackq.diagnosis.queue_state import diagnose, summary
from ackq.info import (
    BatchInfo,
    BatchTarget,
    ConsumerInfo,
    Holder,
    Holding,
    Holdings,
    OutboundReport,
    QueueInfo,
    QueueProperties,
    ServerInfo,
    SessionInfo,
)

NOW_US = 1_357_034_400_000_000  # 2013-01-01 10:00:00 UTC
PROBLEM, WARNING, NOTE, OK = (
    Severity.PROBLEM,
    Severity.WARNING,
    Severity.NOTE,
    Severity.OK,
)


def facts(*, properties=(), holdings=None, broker=None, sessions=(), batches=(), **queue):
    """Facts of queue `q`, durable by default, which `sessions` read."""
    rest = {
        name: queue.pop(name)
        for name in ("dead_letters", "serving", "sources", "outbound")
        if name in queue
    }
    return QueueFacts(
        "q",
        ServerInfo(now_us=NOW_US, **(broker or {})),
        QueueInfo(
            queue="q",
            properties=QueueProperties(**{"durable": True, **dict(properties)}),
            sessions=[each.session for each in sessions],
            **queue,
        ),
        Holdings(**(holdings or {})),
        {each.session: each for each in sessions},
        tuple(batches),
        **rest,
    )


def session(**fields):
    """Session `s`: live, of process 7 on host `h`, with a lease whose rows were read."""
    fields = {
        "live": True,
        "holder": Holder(host="h", pid=7, application="app"),
        "leased": 5,
        "fetched": True,
        "query_id": "Q",
        "batch_id": 4,
        "attaches": 1,
        **fields,
    }
    return SessionInfo(session="s", **fields)


def lease(**fields):
    """The holding of session `s`: 5 messages for 10 s."""
    fields = {"age_ms": 10_000, "connected": True, **fields}
    return held(session="s", **fields)


def held(**fields):
    fields = {"messages": 5, "payload_bytes": 515, "stored_bytes": 4096, **fields}
    return Holding(first_position=3, last_position=7, **fields)


def channel(**fields):
    """The holding of a client's channel: 5 messages for 10 s, recently settling."""
    fields = {"age_ms": 10_000, "quiet_ms": 1_000, "connected": True, **fields}
    return held(channel="h:9", **fields)


def consumer(**fields):
    fields = {"prefetch": 5, "unacked": 5, "connected": True, **fields}
    return ConsumerInfo(consumer="c", channel="h:9", **fields)


def found(given, code):
    """The only finding with this code."""
    (finding,) = [each for each in diagnose(given) if each.code == code]
    return finding


def codes(given):
    return [each.code for each in diagnose(given)]


# --- the queue as a whole ---


def test_a_queue_that_does_not_exist():
    """Q9, Q7: a non-durable queue may have ended with the restart that the uptime shows."""
    broker = ServerInfo(now_us=NOW_US, uptime_ms=90_000)
    (finding,) = diagnose(QueueFacts("it's gone", broker))
    assert (finding.code, finding.severity) == ("queue-missing", PROBLEM)
    assert "declared as not durable" in finding.sentence
    assert "The broker started 1.5 min ago." in finding.sentence
    # The name in the command must be one argument of the shell.
    assert finding.remedy == "ackq queue declare 'it'\"'\"'s gone'"


def test_an_empty_queue():
    """Q9: the sentence says what became of the queue's messages."""
    (finding,) = diagnose(facts())
    assert (finding.severity, finding.sentence) == (
        OK,
        "The queue is empty, and no message was ever published to it.",
    )
    (finding,) = diagnose(facts(published=7, accepted=5, dropped=2))
    assert finding.sentence.endswith("It had 7 messages so far: 5 accepted, 2 dropped.")


# --- channels ---


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


QUIET = {"age_ms": 90_000, "quiet_ms": 90_000}


@pytest.mark.parametrize(
    ("given", "code", "severity", "words"),
    [
        (
            {"ready": 3, "sessions": [session(live=False, leased=0)]},
            "readers-gone",
            PROBLEM,
            "'s', and no query is connected",
        ),
        (
            {"ready": 3, "sessions": [session()], "holdings": {"holdings": [lease()]}},
            "behind-a-batch",
            NOTE,
            "",
        ),
        (
            {"ready": 3, "sessions": [session(leased=0)]},
            "between-triggers",
            NOTE,
            "minMessagesPerTrigger",
        ),
        (
            {"ready": 3, "holdings": {"consumers": [consumer(unacked=1, has_room=True)]}},
            "delivering",
            NOTE,
            "",
        ),
        (
            {
                "ready": 3,
                "holdings": {
                    "holdings": [channel(**QUIET)],
                    "consumers": [consumer(prefetch=1000)],
                },
            },
            "client-does-not-read",
            PROBLEM,
            "",
        ),
        (
            {"holdings": {"holdings": [channel(connected=False)]}},
            "unacked-at-consumer",
            NOTE,
            "Its connection is cut",
        ),
        (
            {"holdings": {"holdings": [channel()]}},
            "unacked-at-consumer",
            NOTE,
            "no longer has a consumer on this queue",
        ),
        (
            {"sessions": [session()], "holdings": {"holdings": [lease(age_ms=3_600_000)]}},
            "lease-long",
            WARNING,
            "",
        ),
        ({"properties": {"durable": False}}, "not-durable", NOTE, ""),
    ],
)
def test_where_messages_are(given, code, severity, words):
    """Q9, C11, C12, K6, Q7, S3: readers with a query or without, a trigger, or a full client."""
    finding = found(facts(**given), code)
    assert finding.severity is severity
    assert words in finding.sentence


# --- sessions ---


def leased(session_info, **fields):
    return facts(
        unacked=5,
        sessions=[session_info],
        holdings={"holdings": [lease(**fields)], "holding_count": 1},
    )


def test_a_lease_of_a_live_query():
    """Q9, S1: the lease's query, batch, attempts, and whether its rows were read."""
    finding = found(leased(session()), "lease-live")
    assert finding.severity is NOTE
    assert finding.sentence == (
        "The session 's' has leased 5 messages (515 bytes, positions 3 to 7; they keep 4.0 KiB of "
        "the journal) for 10 s (since 2013-01-01 09:59:50 UTC), for batch 4 of query Q. Its rows "
        "were read. Process 7 on h (app) is connected, at attempt 1. The messages are accepted "
        "once its checkpoint has the batch."
    )


def test_a_batch_that_is_started_again_and_again():
    """Q9, S8: a lease of many attempts may hold a bad message; the command rejects it."""
    finding = found(leased(session(attaches=4)), "lease-attempts")
    assert finding.severity is PROBLEM
    assert "attempt 4" in finding.sentence
    assert "ackq session reject s --tags" in finding.remedy


def test_a_session_that_was_detached_and_one_that_is_finished():
    """Q9, S5: detached and idle sessions that hold nothing."""
    away = session(live=False, leased=0, detached=True, session_timeout_ms=1_000)
    assert found(facts(sessions=[away]), "session-detached").severity is NOTE
    finished = session(live=False, leased=0)
    finding = found(facts(sessions=[finished]), "session-idle")
    assert finding.remedy.endswith("ackq session release s")
    assert codes(facts(sessions=[session(leased=0)])) == ["queue-empty"]


def test_a_session_that_retains_batches():
    """Q9, S13: how far back accepted batches go, and what they cost."""
    figures = {"retained_batches": 1_200, "retained_from_batch": 7, "retained_age_ms": 3_600_000}
    kept = session(retain_ms=86_400_000, retained_payload_bytes=2048, **figures)
    finding = found(facts(sessions=[kept]), "session-retains")
    assert finding.severity is NOTE
    assert "1,200 accepted batches, from batch 7 on, 1.0 h back: 2" in finding.sentence


def test_a_queue_that_retains_messages():
    """Q9, S13: how far back accepted messages go, what they cost, and how to read them again."""
    given = facts(retained=1_200, retained_payload_bytes=2048, retained_age_ms=3_600_000)
    finding = found(given, "queue-retains")
    assert "1,200 messages that channels accepted, 1.0 h back: 2" in finding.sentence
    assert finding.remedy.endswith(": ackq queue rewind q --earliest")


def test_more_holders_than_are_shown():
    """Q9: holders that are not shown are counted."""
    many = [channel() for _ in range(30)]
    given = facts(unacked=150, holdings={"holdings": many, "holding_count": 2_000})
    assert found(given, "more-holders").sentence.startswith("1,980 more")
    assert codes(given).count("unacked-at-consumer") == 20


# --- waiting messages ---


@pytest.mark.parametrize(
    ("limit", "failures", "code", "severity"),
    [
        (2, 2, "delivery-limit-without-dead-letters", PROBLEM),
        (2, 1, "delivery-limit-without-effect", WARNING),
        (0, 3, "message-fails-again-and-again", WARNING),
    ],
)
def test_a_message_that_fails_for_ever(limit, failures, code, severity):
    """Q9, C13: a message keeps failing, and no limit takes it out."""
    given = facts(
        ready=1,
        properties={"delivery_limit": limit},
        holdings={"most_failures": failures, "consumers": [consumer(has_room=True)]},
    )
    assert found(given, code).severity is severity


def test_a_limit_that_ends_it_says_nothing():
    """C13: no finding for a limit with drop-on-limit or a dead-letter queue."""
    for more in ({"drop_on_limit": True}, {"dead_letter_queue": "d"}):
        given = facts(
            properties={"delivery_limit": 2, **more},
            holdings={"most_failures": 2},
            dead_letters=QueueInfo(queue="d"),
        )
        assert codes(given) == ["queue-empty"]


@pytest.mark.parametrize(
    ("overflow", "severity"),
    [("drop-head", WARNING), ("reject-publish", NOTE)],
)
def test_a_dead_letter_queue_that_is_full(overflow, severity):
    """Q9, C13: dead letters always get in; a drop-head queue drops its oldest for them."""
    properties = QueueProperties(max_length=2, overflow=overflow)
    dead = QueueInfo(queue="d", ready=2, properties=properties)
    given = facts(properties={"dead_letter_queue": "d"}, dead_letters=dead)
    assert found(given, "dead-letter-queue-full").severity is severity
    assert found(given, "dead-letters").remedy.endswith("ackq queue redrive d")


@pytest.mark.parametrize(
    ("properties", "queue", "holdings"),
    [
        ({"max_length": 4}, {"ready": 1, "unacked": 1, "delayed": 1, "staged": 1}, {}),
        ({"max_bytes": 100}, {"ready": 1, "payload_bytes": 60}, {"staged_bytes": 40}),
    ],
)
def test_a_full_queue_refuses_publishers(properties, queue, holdings):
    """Q9, Q3: ready, delayed, unacked and staged messages count for the bound."""
    given = facts(properties=properties, holdings=holdings, **queue)
    finding = found(given, "queue-full-refuses")
    assert finding.severity is PROBLEM
    assert "publishers are refused" in finding.sentence
    properties = {name: bound + 1 for name, bound in properties.items()}
    assert "queue-full-refuses" not in codes(
        facts(properties=properties, holdings=holdings, **queue)
    )


def test_a_full_queue_drops_its_oldest():
    """Q9, Q3: with drop-head only ready messages count for the bound."""
    properties = {"max_length": 3, "overflow": "drop-head"}
    finding = found(facts(ready=3, dropped=9, properties=properties), "queue-full-drops")
    assert "9 messages are dropped" in finding.sentence
    assert "queue-full-drops" not in codes(facts(ready=2, unacked=5, properties=properties))


def batch(**fields):
    target = BatchTarget(queue="q", rows=10, payload_bytes=2048)
    return BatchInfo(writer="W", batch_id=3, targets=[target], **fields)


def test_staged_rows_of_a_writer_that_is_gone():
    """Q9, K3: staged rows of a silent writer hold room; the command drops them."""
    given = facts(staged=10, batches=[batch(age_ms=3_600_000)])
    finding = found(given, "staged-and-silent")
    assert finding.severity is WARNING
    assert "Batch 3 of 'W' has staged 10 rows (2.0 KiB) and not" in finding.sentence
    assert "7 days" in finding.sentence
    assert finding.remedy.endswith("ackq batch drop W 3")
    single = facts(staged=10, batches=[batch(age_ms=3_600_000, single=True)])
    assert "a day" in found(single, "staged-and-silent").sentence


def test_rows_that_another_edge_may_have_committed():
    """K14: they are not dropped without force, and no retention ends them."""
    given = facts(staged=10, batches=[batch(age_ms=3_600_000, edges="a:1,b:1")])
    finding = found(given, "prepared")
    assert "for the edges a:1,b:1" in finding.sentence
    assert finding.remedy.endswith("ackq batch drop W 3 --force")


def test_staged_rows_of_a_write_under_way():
    """Q9, K3: staged rows of a running write are normal; a repetition takes no room."""
    for fields in ({"open_stages": 2, "age_ms": 3_600_000}, {"age_ms": 5_000}):
        assert found(facts(staged=10, batches=[batch(**fields)]), "staging").severity is NOTE
    assert codes(facts(staged=10, batches=[batch(committed=True)])) == ["nothing-stuck"]


def test_messages_that_expire():
    """Q9, Q3: when messages expire, and where they go."""
    given = facts(ready=1, expired=4, holdings={"next_expiry_ms": 60_000})
    assert found(given, "expiry-ahead").sentence.endswith(
        "expire and are deleted: the next in 1.0 min."
    )
    assert "4 messages expired" in found(given, "expired").sentence


# --- the broker ---


@pytest.mark.parametrize(
    ("reason", "alarm"),
    [
        ("The broker's disk has 5 bytes left; make room.", "disk"),
        ("The broker's memory is short: it uses 5 bytes.", "memory"),
    ],
)
def test_an_alarm_blocks_publishers(reason, alarm):
    """Q9, P14: an alarm is a problem with the broker's reason."""
    finding = found(facts(broker={"blocked": reason, "alarm": alarm}), f"{alarm}-alarm")
    assert finding.severity is PROBLEM
    assert reason in finding.sentence


@pytest.mark.parametrize(("waits", "told"), [("alarm", True), ("", False)])
def test_an_outbound_link_that_publishes_nothing(waits, told):
    """L26: only a link's present obstacle is a finding of its queue, no past one."""
    link = OutboundReport(link="l", queue="q", target="t", refused=1, limited_by=waits)
    codes = [each.code for each in diagnose(facts(outbound=(link,)))]
    assert ("link-out-blocked" in codes) is told
    assert "link-out-works" not in codes


def test_a_broker_that_stops_and_a_clock_that_jumped():
    """Q9, Q8: findings on the whole broker come with every queue, even a missing one."""
    given = facts(serving=False, broker={"clock_jump_ms": 7_200_000})
    assert codes(given) == ["broker-stopping", "clock-jump"]
    assert "2.0 h ahead" in found(given, "clock-jump").sentence
    gone = QueueFacts("q", ServerInfo(), serving=False)
    assert [each.code for each in diagnose(gone)] == ["queue-missing", "broker-stopping"]


# --- the rest ---


def test_the_worst_comes_first():
    """Q9: findings are sorted, the most severe first, and each state has a finding."""
    given = facts(
        ready=3, expired=1, properties={"max_length": 3, "dead_letter_queue": "d"}, delayed=1
    )
    severities = [finding.severity for finding in diagnose(given)]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[0] is PROBLEM


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
    assert summary(QueueFacts("q", ServerInfo())) == "queue 'q' does not exist"
