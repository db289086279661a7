"""Histories of the journal: an older one is refused until an operator accepts it (Q8)."""

from collections.abc import Callable

import pytest

from ackq.errors import HistoryChangedError, PublisherForgottenError
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import PUBLISHER, Harness, Reader

NOBODY = c.RefusedByHistory(0, 0, 0)


def restart(harness: Harness, history: str, cause: str = "copied") -> None:
    """Starts another process, which may serve another history."""
    harness.core = Core.restore(harness.core.snapshot())
    harness.do(c.Start(history, cause))


@pytest.fixture
def reader(harness: Harness) -> Reader:
    """A session with a lease, a writer with a sealed stage and a commit, and `PUBLISHER`."""
    harness.declare_filled("q", 5)
    reader = harness.lease("q", max_messages=2)
    harness.commit("w", 1, harness.stage("w", 1, ["q"], name="s"))
    harness.stage("w", 2, ["q"], name="t")
    return reader


def uses(harness: Harness, reader: Reader) -> dict[str, Callable[[], object]]:
    """The calls of the older publisher, session and writer."""
    return {
        "advance": lambda: reader.advance(0),
        "attach": lambda: reader.attach(0, 2),
        "fetch": lambda: reader.pieces(0, 2),
        "publisher": lambda: harness.do(c.OpenPublisher(PUBLISHER, resume=True)),
        "stage": lambda: harness.stage("w", 2, ["q"], name="u"),
        "commit again": lambda: harness.commit("w", 1),
        "commit": lambda: harness.commit("w", 2),
    }


@pytest.mark.parametrize("cause", ["copied", "declared", "repaired"])
def test_the_older_are_refused(harness: Harness, reader: Reader, cause: str) -> None:
    """Q8: the refusal has both histories, the time, the cause and the remedy."""
    restart(harness, "second", cause)
    for use in uses(harness, reader).values():
        with pytest.raises(
            HistoryChangedError, match=r"`ackq broker accept-history`\. Or "
        ) as headers:
            use()
        assert headers.value.fields["history"] == "history"
        assert headers.value.fields["present_history"] == "second"
        assert headers.value.fields["cause"] == cause
        assert "history second at 2023-11-14T22:13:20Z, because " in headers.value.message
    assert views.refused_by_history(harness.core.state) == c.RefusedByHistory(
        publishers=1, sessions=1, writers=1
    )
    assert views.history_cause(harness.core.state) == cause


def test_an_accepted_history_admits_all(harness: Harness, reader: Reader) -> None:
    """Q8: refused clients continue where they were; accepting again changes nothing."""
    restart(harness, "second")
    assert harness.do(c.AcceptHistory()) == c.RefusedByHistory(1, 1, 1)
    again = harness.decide(c.AcceptHistory())
    assert (again.records, again.reply) == ((), NOBODY)
    for use in uses(harness, reader).values():
        use()
    restart(harness, "second")
    assert views.refused_by_history(harness.core.state) == NOBODY
    reader.advance(0)


def test_the_next_history_has_to_be_accepted_anew(harness: Harness, reader: Reader) -> None:
    """Q8: also for clients begun in between; the message names the change and the history."""
    restart(harness, "second")
    harness.do(c.AcceptHistory())
    between = harness.open("q", session="between")
    restart(harness, "third", "repaired")
    assert views.refused_by_history(harness.core.state) == c.RefusedByHistory(1, 2, 1)
    with pytest.raises(HistoryChangedError, match="it was damaged and repaired") as headers:
        between.advance(0)
    assert headers.value.fields["history"] == "second"
    with pytest.raises(HistoryChangedError, match="is a copy of another one, and is third now"):
        reader.advance(0)
    harness.open("q", session="third").advance(0)


def test_an_ordinary_restart_is_the_same_history(harness: Harness, reader: Reader) -> None:
    """Q8: there is no false alarm, and no second entry."""
    for _ in range(3):
        restart(harness, "history", "")
    assert views.refused_by_history(harness.core.state) == NOBODY
    reader.advance(0)
    assert harness.decide(c.AcceptHistory()).records == ()


def test_a_publisher_that_the_copy_never_knew(harness: Harness) -> None:
    """P10, Q8: the refusal names the time at which the history changed."""
    restart(harness, "second")
    with pytest.raises(
        PublisherForgottenError, match="when the history changed at 2023-11-14T22:13"
    ):
        harness.do(c.OpenPublisher(b"unknown".ljust(16), resume=True))


@pytest.mark.usefixtures("reader")
def test_a_session_may_be_opened_anew_under_its_name(harness: Harness) -> None:
    """Q8, S9: the new session gets the older lease, as in any opening."""
    restart(harness, "second")
    opened = harness.open("q", takeover=True)
    assert opened.advance(0, max_messages=9).end_tag == 6
