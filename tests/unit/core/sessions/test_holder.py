"""Holders of a session (S3): tokens, epochs, fencing."""

import pytest

from ackq.errors import AlreadyHeldError, CheckpointMismatchError, FencedError
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, BOB, Reader, labels


def test_a_new_holder_fences_the_old_one(reader: Reader) -> None:
    """S3: the epoch rises, and every call of the older one is refused, naming the new holder."""
    reader.advance(0, max_messages=4)
    assert reader.advance(0, holder=BOB).epoch == 2
    assert reader.fetch(0, 4) == labels(1, 4)
    with pytest.raises(FencedError, match="host-b, pid 22") as caught:
        reader.pieces(0, 4, epoch=1)
    assert caught.value.fields["current_epoch"] == "2"
    core, incarnation = reader.harness.core, reader.command.incarnation
    views.check_holder(core.state, "s", incarnation, 2, BOB.token)
    for epoch, token in ((1, ALICE.token), (2, ALICE.token)):
        with pytest.raises(FencedError, match="host-b"):
            views.check_holder(core.state, "s", incarnation, epoch, token)


def test_an_epoch_from_the_future_is_a_broker_of_the_past(reader: Reader) -> None:
    """S3: a reader with a higher epoch is refused: the broker is older than the reader."""
    reader.advance(0)
    with pytest.raises(CheckpointMismatchError, match="older than the reader"):
        reader.pieces(0, 10, epoch=2)


def test_attaches_are_counted_per_lease(reader: Reader) -> None:
    """S8: each new holder of a lease counts; a new lease begins at one."""
    assert reader.advance(0, max_messages=4).attaches == 1
    assert reader.advance(0, holder=BOB).attaches == 2
    assert reader.attach(0, 4, holder=ALICE).attaches == 3
    assert reader.info().attaches == 3
    assert reader.advance(4, holder=BOB).attaches == 1


def test_the_service_learns_whom_a_call_would_meet(reader: Reader) -> None:
    """S3: the incarnation and token by which the service tracks liveness."""
    core, incarnation = reader.harness.core, reader.command.incarnation
    assert views.incumbent(core.state, "s", "") == (incarnation, ALICE.token)
    assert views.incumbent(core.state, "", incarnation) == (incarnation, ALICE.token)
    assert views.incumbent(core.state, "s", "unknown") is None
    assert views.incumbent(core.state, "unknown", "") is None


def test_a_live_holder_is_named(reader: Reader) -> None:
    """S3, K10: another process is refused while the holder lives, and the error names it."""
    reader.advance(0)
    with pytest.raises(AlreadyHeldError, match=r"host-a, pid 11 \(app-a\), since 2023-11-14T") as e:
        reader.advance(0, holder=BOB, incumbent_live=True)
    assert e.value.fields["holder_host"] == "host-a"
    assert e.value.fields["holder_pid"] == "11"
    with pytest.raises(AlreadyHeldError):
        reader.attach(0, 10, holder=BOB, incumbent_live=True)
    with pytest.raises(AlreadyHeldError):
        reader.harness.open("q", holder=BOB, incumbent_live=True)
