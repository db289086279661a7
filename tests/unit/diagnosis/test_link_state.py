"""L26: each state of a link has its sentence, with what to do."""

import pytest

from ackq.diagnosis.finding import Severity
from ackq.diagnosis.link_state import held_up
from ackq.info import Holder, LinkInfo, LinkReport


def found(**fields):
    return list(held_up(LinkInfo(link="l", queue="q", source="there", **fields)))


def report(**fields):
    return {"live": True, "report": LinkReport(**fields)}


def test_a_link_at_work():
    """L26: it has no state that anybody need know of."""
    assert found(live=True) == []
    assert found(**report(window_messages=5, reconnects=3)) == []


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({}, "link-absent", "nobody runs it. What it holds"),
        ({"holder": Holder(host="h", pid=7)}, "link-absent", "the last was h (7)"),
        ({"live": True, "paused": True}, "link-paused", "an operator paused it"),
        (
            {"live": True, "refusal": "'q' is full."},
            "link-refused",
            "takes nothing from it. 'q' is",
        ),
        ({"held": 5, **report(window_messages=5)}, "link-window-full", "and 5 is its window"),
        (report(limited_by="broker"), "link-limited", "limited by its broker"),
        ({"live": True, "held": 1}, "link-holds", "holds 1 message, the oldest for"),
        ({"live": True, "in_doubt": 1}, "link-in-doubt", "1 acknowledgement of broken"),
        (report(lives_left=1), "link-lives", "may deliver 1 more time before"),
        (report(vanished=2), "link-vanished", "held 2 messages that"),
    ],
)
def test_what_holds_a_link_up(fields, code, said):
    """L26: one finding of this code, which names the link and says why."""
    (finding,) = [each for each in found(**fields) if each.code == code]
    assert finding.sentence.startswith("The link 'l' ")
    assert said in finding.sentence


def test_commands_that_help():
    """L26: as a shell takes them."""
    (paused,) = held_up(LinkInfo(link="a b", live=True, paused=True))
    assert paused.remedy.endswith("ackq link resume 'a b'")


@pytest.mark.parametrize(("lives", "severity"), [(5, Severity.WARNING), (6, Severity.NOTE)])
def test_lives_are_a_matter_when_few_are_left(lives, severity):
    """L16: before the last ones go."""
    (finding,) = found(**report(lives_left=lives))
    assert finding.severity is severity
