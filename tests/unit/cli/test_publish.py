"""The counts of `ackq publish`, and the status that they end in."""

from concurrent.futures import Future

import pytest

from ackq.cli.failure import ExitStatus
from ackq.cli.publish import Tally
from ackq.errors import ClosedError, OutcomeUnknownError, UnroutableError

UNROUTABLE = UnroutableError("No queue.")
UNKNOWN = OutcomeUnknownError("Perhaps.")
CLOSED = ClosedError("Closed.")


@pytest.mark.parametrize(
    ("failures", "counts", "status"),
    [
        ([UNROUTABLE, UNROUTABLE], (2, 0), ExitStatus.NOT_CONFIRMED),
        ([UNKNOWN, CLOSED], (0, 2), ExitStatus.UNKNOWN),
        ([UNROUTABLE, UNKNOWN], (1, 1), ExitStatus.UNKNOWN),
    ],
)
def test_a_message_without_an_answer_has_not_failed(failures, counts, status):
    """P3: whoever publishes again what was sent without an answer may double it."""
    tally = Tally()
    for number, failure in enumerate(failures):
        future = Future()
        future.set_exception(failure)
        tally.sent += 1
        tally.count(number, future)
    assert tally.notice() == {"confirmed": 0, "failed": counts[0], "unanswered": counts[1]}
    assert tally.problem.status is status
