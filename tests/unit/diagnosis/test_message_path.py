"""Q9: the place of a message, in sentences."""

from dataclasses import replace
from datetime import UTC, datetime

from ackq.diagnosis.message_path import Hit, path_of
from ackq.info import Holding, SessionInfo


def row(**fields):
    fields = {"position": 3, "leased": False, "delivery_count": 1, "headers": None, **fields}
    return {"published_at": datetime(2013, 1, 1, 10, tzinfo=UTC), **fields}


def test_a_message_that_a_session_leases():
    """Q9, S1: a leased message, with tag, query, batch and attempt."""
    holding = Holding(session="s", delivery_tag=9, age_ms=60_000)
    session = SessionInfo(
        session="s", live=True, fetched=True, query_id="Q", batch_id=4, attaches=2
    )
    (sentence,) = path_of(Hit("q", row(leased=True), holding, session))
    assert sentence.endswith(
        "leased by session 's' for 1.0 min under tag 9 for batch 4 of query Q, attempt 2."
    )
    session = replace(session, live=False, fetched=False)
    (sentence,) = path_of(Hit("q", row(leased=True), holding, session))
    assert "'s', whose query is not connected for" in sentence
    assert sentence.endswith("attempt 2; its rows were not read yet.")
    assert Hit("q", row(leased=True), holding, session).as_dict()["query_id"] == ""


def test_a_message_at_a_client():
    """Q9: a message unacked at a client, and one released during the look-up."""
    holding = Holding(channel="h:9", delivery_tag=2, age_ms=1_000)
    (sentence,) = path_of(Hit("q", row(leased=True), holding))
    assert sentence.endswith("unacked at the client 'h:9' for 1 s.")
    (sentence,) = path_of(Hit("q", row(leased=True)))
    assert sentence.endswith("its holder has just released it.")


def test_a_dead_letter():
    """Q9, C13: cause, reason, settling session and batch, and origin of a dead letter."""
    names = {
        "cause": "rejected",
        "reason": "no id",
        "session": "s",
        "batch": "4",
        "at": "2013-01-01T10:00:00Z",
        "queue": "orders",
        "position": "7",
        "deliveries": "2",
        "count": "1",
        "first-queue": "orders",
    }
    hit = Hit("dead", row(headers=[(f"ackq-dead-{name}", value) for name, value in names.items()]))
    assert path_of(hit)[1] == (
        "It is a dead letter: rejected, reason 'no id' by session 's' in batch 4, at "
        "2013-01-01T10:00:00Z, from queue 'orders' position 7, at delivery 2. It was "
        "dead-lettered from that queue for this cause once; the first time was from queue 'orders'."
    )
    assert hit.as_dict()["dead_letter"] == names
