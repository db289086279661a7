"""One user's share of the bounds that all users have together (A5, I6)."""

from dataclasses import replace

import pytest

from ackq import limits
from ackq.errors import LimitError
from ackq_broker.core import commands as c
from tests.unit.core.harness import refused
from tests.unit.core.link_process import LinkProcess

MOST = 4


# Each bound of what the broker keeps for all users, and where the share of one is checked.
BOUNDS = {
    "MAX_PUBLISHERS": "core",
    "MAX_WRITERS": "core",
    "MAX_SESSIONS": "core",
    "MAX_LINKS": "core",
    "MAX_OUTBOUND_REPORTS": "service.links.outbound",
    "MAX_STREAMS": "security.streams",
    "MAX_QUEUES": "security.usage",
    "MAX_EXCHANGES": "security.usage",
    "MAX_BINDINGS": "security.usage",
    "MAX_HTTP_CONNECTIONS": "of one address: MAX_HTTP_CONNECTIONS_EACH",
}


# Bounds of one object, one request or one client.
OWN = {
    *("MAX_MESSAGE_BYTES", "MAX_FRAME_BYTES", "MAX_FRAME_ROWS", "MAX_HEADER_BYTES"),
    *("MAX_NAME_BYTES", "MAX_ROUTING_KEY_BYTES", "MAX_DISTINCT_ROUTES_PER_FRAME"),
    *("MAX_REQUEST_BYTES", "MAX_REQUEST_FIELDS", "MAX_TOPIC_WORDS", "MAX_TRANSACTION_MESSAGES"),
    *("MAX_ADVANCE_WAIT_MS", "MAX_LEASE_CHUNKS", "MAX_OUTCOME_STAGE_TAGS"),
    *("MAX_OUTCOME_STAGE_GROUPS", "MAX_OUTCOME_STAGE_BYTES", "MAX_SETTLE_RANGES"),
    *("MAX_CHANNEL_WINDOW_MESSAGES", "MAX_CONSUMERS_PER_CHANNEL", "MAX_SETTLE_RUNS"),
    *("MAX_LINK_SOURCE_BYTES", "MAX_LINK_REASON_BYTES", "MAX_LINK_ENTRIES"),
    *("MAX_PUBLISHED_AT_US", "MAX_TTL_MS"),
    *("MAX_TOPIC_STEPS", "MAX_BLOCK_STEPS", "MAX_BLOCK_QUEUES", "MAX_HTTP_CONNECTIONS_EACH"),
    *("MAX_GROUP_BYTES", "MAX_UNSYNCED_BYTES", "MAX_RETAINED_BATCHES"),
}


def test_each_bound_has_a_share_or_is_of_one():
    """A5: a new bound is added to these tables, with the place that checks a user's share."""
    every = {name for name in vars(limits) if name.startswith("MAX_")}
    assert every == set(BOUNDS) | OWN


KINDS = ["MAX_LINKS", "MAX_PUBLISHERS", "MAX_SESSIONS", "MAX_WRITERS"]


def opened(harness, kind, number, user):
    """Opens one more object of a kind for a user."""
    name = f"{user}-{number}"
    if kind == "MAX_PUBLISHERS":
        harness.do(c.OpenPublisher(name.encode().ljust(16), user=user))
    elif kind == "MAX_WRITERS":
        harness.do(c.OpenStage(name.encode().ljust(16), name, 0, "run", user=user))
    elif kind == "MAX_SESSIONS":
        harness.open("q", session=name, user=user)
    else:
        LinkProcess(harness, name, user=user)


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_of_a_user(harness, monkeypatch, kind):
    """A5, I6: at half the bound a user is refused, but others are not; also after a restart."""
    harness.declare("q")
    there = len(harness.core._state.publishers) if kind == "MAX_PUBLISHERS" else 0
    monkeypatch.setattr(limits, kind, MOST + there)
    half = limits.user_share(MOST + there)
    for number in range(half):
        opened(harness, kind, number, "mallory")
    for _ in range(2):
        refused(LimitError, "share", opened, harness, kind, half, "mallory")
        harness.restart()
    opened(harness, kind, 0, "alice")


def test_a_publisher_that_ends_is_none(harness, monkeypatch):
    """A5, P10: a publisher that is closed and finished no longer counts for its user."""
    monkeypatch.setattr(limits, "MAX_PUBLISHERS", 3)  # the harness has one
    own = c.OpenPublisher(b"o" * 16, user="alice")
    harness.do(own)
    with pytest.raises(LimitError):
        harness.do(replace(own, publisher_id=b"n" * 16))
    harness.do(c.ClosePublisherStream(b"o" * 16, finished=True))
    harness.do(replace(own, publisher_id=b"n" * 16))
    assert harness.core._state.publishers_of["alice"] == 1
