"""A second user acts under ids of the first, which then continues as if that had not happened."""

import pytest

from ackq_broker.core import commands as c
from tests.model.explorer import explore
from tests.model.owning import Owning, flaw, loss

SWITCHED_OFF = {
    "publisher": (c.OpenPublisher,),
    "writer": (c.OpenStage, c.CommitBatch),
    "query": (c.NoteFetch,),
}


@pytest.mark.parametrize("kind", SWITCHED_OFF)
def test_an_id_is_of_its_owner_alone(kind):
    """A10, P10, K3, S11: the owner loses no row, and none of its calls is refused."""
    found = explore(Owning(kind), judge=flaw)
    assert not found.wrong, str(found)
    assert found.worlds > 5


@pytest.mark.parametrize(
    ("kind", "judge", "told"),
    [
        *((kind, flaw, "alice can not go on") for kind in ("publisher", "query")),
        *((kind, loss, "is lost") for kind in ("publisher", "writer")),
    ],
)
def test_without_owners_a_trace_is_found(kind, judge, told):
    """A10, P10, K3, S11: without the rule the explorer finds a shortest trace to the flaw."""
    found = explore(Owning(kind, *SWITCHED_OFF[kind]), judge=judge)
    print(f"{kind}: {found}")
    assert told in found.wrong
    assert found.trace
