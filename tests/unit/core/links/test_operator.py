"""Operators of links: their calls, and the figures that they see (L25, L26)."""

import pytest

from ackq.errors import InUseError
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.link_process import accept


def test_a_link_with_settled_messages_stays(process):
    """L25: settled messages that were never permitted would be stored again as new."""
    harness = process.harness
    process.store(["a", "b"])
    process.subscribe()
    accept(harness, 1, 2)
    with pytest.raises(InUseError, match=r"0 messages of it are not settled .* 2 acknowledgements"):
        harness.do(c.RemoveLink("l"))
    assert harness.do(c.RemoveLink("l", forget=True)) == c.RemovedLink(0, 2)


def test_what_did_not_come_again(process):
    """L18: counts held messages that were not redelivered; settled ones are not missed."""
    process.store(["a", "b", "c", "d"])
    assert views.link_missing(process.harness.core.state, "l") == 0
    accept(process.harness, 1)
    process.permit()
    process.subscribe()
    assert views.link_missing(process.harness.core.state, "l") == 3
    process.store(["c"])
    assert views.link_missing(process.harness.core.state, "l") == 2
    accept(process.harness, 2)
    assert views.link_missing(process.harness.core.state, "l") == 1
    assert views.link_missing(process.harness.core.state, "another") == 0
    assert views.link_queue(process.harness.core.state, "l") == "q"
    assert views.link_queue(process.harness.core.state, "another") == ""
