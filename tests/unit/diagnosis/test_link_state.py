"""L26: each state of a link has its sentence and its remedy."""

import pytest

from ackq.diagnosis.finding import Severity
from ackq.diagnosis.link_state import held_up, outbound_held_up, outbound_sentences
from ackq.info import Holder, LinkInfo, LinkReport, OutboundReport


def found(**fields):
    return list(held_up(LinkInfo(link="l", queue="q", source="there", **fields)))


def report(**fields):
    return {"live": True, "report": LinkReport(**fields)}


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({}, "link-absent", "no process runs it. The messages"),
        ({"holder": Holder(host="h", pid=7)}, "link-absent", "the last was h (7)"),
        ({"live": True, "paused": True}, "link-paused", "an operator paused it"),
        ({"live": True, "refusal": "'q' is full."}, "link-refused", "keeps the rest. 'q' is"),
        ({"held": 5, **report(window_messages=5)}, "link-window-full", "and its window is 5"),
        (report(limited_by="connection"), "link-cut", "to there, and acknowledges nothing; it tr"),
        ({"paused": True, **report(limited_by="connection")}, "link-paused", "paused it."),
        ({"paused": True, **report(limited_by="connection")}, "link-cut", "while it is paused."),
        (report(limited_by="broker"), "link-limited", "limited by its broker"),
        ({"live": True, "held": 1}, "link-holds", "holds 1 message, the oldest for"),
        ({"live": True, "in_doubt": 1}, "link-in-doubt", "1 acknowledgement of broken"),
        (report(lives_left=1), "link-lives", "may deliver 1 more time before"),
    ],
)
def test_what_holds_a_link_up(fields, code, said):
    """L26: one finding with this code, which names the link and the cause."""
    (finding,) = [each for each in found(**fields) if each.code == code]
    assert finding.sentence.startswith("The link 'l' ")
    assert said in finding.sentence


def test_commands_that_help():
    """L26: names in the suggested commands are quoted for the shell."""
    (paused,) = held_up(LinkInfo(link="a b", live=True, paused=True))
    assert paused.remedy.endswith("ackq link resume 'a b'")


@pytest.mark.parametrize(("lives", "severity"), [(5, Severity.WARNING), (6, Severity.NOTE)])
def test_lives_are_a_matter_when_few_are_left(lives, severity):
    """L16: a warning while few delivery attempts are left, else a note."""
    (finding,) = found(**report(lives_left=lives))
    assert finding.severity is severity


def out(**fields):
    given = {"link": "l", "queue": "q", "target": "there", **fields}
    return list(outbound_held_up(OutboundReport(**given)))


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"limited_by": "connection"}, "link-out-cut", "to there and is not connected to it. Si"),
        ({"limited_by": "alarm"}, "link-out-blocked", "to there, which blocks publishers now. Si"),
        ({"limited_by": "refusals"}, "link-out-refused", "which refuses some of its messages. Si"),
        ({"limited_by": "new"}, "link-out-limited", "to there and waits: new. Since"),
    ],
)
def test_what_holds_an_outbound_link_up(fields, code, said):
    """L26: a warning with this code, which names the link, its queue and its target."""
    (finding,) = out(**fields, refused=1, unfit=2, cuts=3, reason="no queue takes it.")
    assert (finding.code, finding.severity) == (code, Severity.WARNING)
    assert finding.sentence.startswith("The link 'l' publishes queue 'q' to there")
    assert said in finding.sentence
    assert finding.sentence.endswith(
        "Since it started it had 1 refusal, 2 messages that can never be published, 3"
        " cuts; the last reason: no queue takes it."
    )


def test_what_has_held_an_outbound_link_up():
    """L26: a note with the remedy for messages that can never be sent."""
    (finding,) = out(unfit=1, reason="AMQP cannot carry it")
    assert (finding.code, finding.severity) == ("link-out-works", Severity.NOTE)
    (text,) = outbound_sentences(OutboundReport(unfit=1, reason="AMQP cannot carry it"))
    assert text.endswith("AMQP cannot carry it. " + finding.remedy)
    assert "dead-letter queue" in finding.remedy
    assert out(refused=1)[0].remedy == ""
