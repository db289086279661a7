"""`ackq link drain`: the links that it cannot drain."""

from types import SimpleNamespace

import pytest

from ackq.cli import links
from ackq.errors import PreconditionFailedError
from ackq.info import LinkInfo, LinkReport

CUT = {"live": True, "report": LinkReport(limited_by="connection")}
WORKS = {"live": True, "report": LinkReport(limited_by="broker")}


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    """Lets no look wait."""
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(links, "time", clock)


def drained(*states, timeout_ms=None):
    """What a drain returns that sees these states of a link, the last one again and again."""
    seen = [*states]

    def look():
        state = seen.pop(0) if len(seen) > 1 else seen[0]
        return LinkInfo(link="l", **state)

    return links._drained(look, timeout_ms, as_json=False)


@pytest.mark.parametrize("held", [0, 1])
@pytest.mark.parametrize(
    ("state", "said"),
    [({}, "it has no process. Start it, resume it"), (CUT, "not connected to .*. Resume it")],
    ids=["absent", "cut"],
)
@pytest.mark.parametrize("timeout_ms", [0, None])
def test_a_link_that_acknowledges_nothing(state, said, held, timeout_ms):
    """L25: a drain of it ends with the remedy: what was settled since is not acknowledged."""
    with pytest.raises(PreconditionFailedError, match=said):
        drained({**state, "held": held}, timeout_ms=timeout_ms)


def test_a_link_that_connects_again():
    """L25: the drain of a link goes on that connects, or whose process is back, within seconds."""
    states = [CUT] * 10 + [{}] * 5 + [{"held": 1, **WORKS}] + [CUT] * 10
    assert drained(*states, WORKS).held == 0
