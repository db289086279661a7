"""`ackq top` on a terminal with long names."""

import io

import pytest
from rich.console import Console

from ackq.cli.queue_rates import Look, rows
from ackq.cli.top import screen
from ackq.info import QueueInfo, SessionInfo

LONG = "q" * 100 + "-" + "z" * 149


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_name_leaves_the_figures_whole(width):
    """M4: names and readers are elided in the middle, and each queue stays one line."""
    queues = [
        QueueInfo(queue=name, ready=1_234_567, unacked=7_654_321, oldest_age_ms=5_000)
        for name in (LONG, "short")
    ]
    session = SessionInfo(session=LONG, queues=[LONG], leased=1, lease_age_ms=1)
    look = Look(0.0, tuple(queues), (session,))
    console = Console(width=width, file=io.StringIO())
    console.print(screen("127.0.0.1:5775", look, rows(look), 2, "", console.width))
    _, _, long, short = console.file.getvalue().splitlines()
    assert len(long) <= width
    for line in (long, short):
        assert line.split()[1:5] == ["5.0", "s", "1,234,567", "7,654,321"]
    assert long.index("1,234,567") == short.index("1,234,567")
    name = long.split()[0]
    assert name.startswith("qqqqqq")
    assert name.endswith("zzzzzz")
