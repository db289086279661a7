"""Summary lines of the log, and the events of an engine."""

from ackq_broker.core import commands as c
from tests.fakes.journal import HeldEngine


def test_dead_letters_are_reported_once(caplog):
    """M3, C13: dead letters since the last report, by cause; the line names the most first.

    It stays short, however many queues have dead letters.
    """
    engine = HeldEngine()
    engine.decide(c.Start("history"))
    signals = engine.core._state.signals
    signals.dead_letters.update({(f"q{n:02}", "rejected"): n for n in range(1, 13)})
    engine.report_dead_letters()
    engine.report_dead_letters()
    (record,) = caplog.records
    assert (record.event, record.fields) == ("dead_letters", {"rejected": 78})
    line = caplog.messages[0]
    assert line.startswith("78 messages became dead letters: 'q12' 12 rejected, 'q11' 11 rejected")
    assert line.endswith("'q03' 3 rejected and 2 more")
