"""Summary lines of the log, and the events of an engine."""

from ackq_broker.core import commands as c
from ackq_broker.engine.events import dead_letters_line
from tests.fakes.journal import HeldEngine


def test_dead_letters_are_named_the_most_first():
    """M3: the line stays short, however many queues have dead letters."""
    counts = {(f"q{n:02}", "rejected"): n for n in range(1, 13)}
    line = dead_letters_line(counts)
    assert line.startswith("78 messages became dead letters: 'q12' 12 rejected, 'q11' 11 rejected")
    assert line.endswith("'q03' 3 rejected and 2 more")
    assert dead_letters_line({("q", "expired"): 1}) == (
        "1 message became dead letters: 'q' 1 expired"
    )


def test_dead_letters_are_reported_once(caplog):
    """M3, C13: dead letters since the last report, by cause."""
    engine = HeldEngine()
    engine.decide(c.Start("history"))
    engine.decide(c.DeclareQueue("dead", c.QueueProperties()))
    engine.decide(c.DeclareQueue("q", c.QueueProperties(dead_letter_queue="dead")))
    engine.core._state.signals.dead_letters["q", "rejected"] = 2
    engine.core._state.signals.dead_letters["r", "rejected"] = 3
    engine.report_dead_letters()
    engine.report_dead_letters()
    (record,) = caplog.records
    assert (record.event, record.fields) == ("dead_letters", {"rejected": 5})
