"""Publishes without permission: each is refused by itself, in every client (A3, P8)."""

import pytest

from ackq.client import Publisher, Security
from ackq.errors import PermissionDeniedError
from tests.unit.client.publishing.scripts import KINDS
from tests.wire.access.conftest import with_master


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The module's broker; the user `app` may write to queue `good` alone."""
    with with_master(tmp_path_factory.mktemp("guarded")) as found:
        found.add("app", write="good")
        yield found


@pytest.fixture
def endpoint(guarded):
    """The module's broker with new queues `good` and `bad`."""
    with guarded.client("master") as master:
        for name in ("good", "bad"):
            master.declare(name)
        yield guarded.broker.endpoint
        for name in ("good", "bad"):
            master.delete(name, force=True)


@pytest.fixture
def security(guarded):
    return Security(token=guarded.tokens["app"])


def published(guarded):
    """How many messages were published to each queue."""
    with guarded.client("master") as master:
        return [master.queue(name).published for name in ("good", "bad")]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_message(guarded, endpoint, security, kind):
    """P8: messages before and after a denied one are confirmed, on the same stream."""
    with kind(endpoint, security=security) as publisher:
        for key in ("good", "bad", "good"):
            error = publisher.publish(b"x", routing_key=key).exception(60)
            assert type(error) is (PermissionDeniedError if key == "bad" else type(None))
        with pytest.raises(PermissionDeniedError, match="write on queue 'bad'"):
            publisher.flush()
        publisher.publish(b"x", routing_key="good").result(60)
    assert published(guarded) == [3, 0]


def test_refusals_are_audited(guarded, endpoint):
    """A8: refusals that a stream answers are audited, too."""
    guarded.add("other", write="good")  # a user has a line a second
    with Publisher(endpoint, security=Security(token=guarded.tokens["other"])) as publisher:
        assert publisher.publish(b"x", routing_key="bad").exception(60) is not None
        with pytest.raises(PermissionDeniedError):
            publisher.flush()
    denied = [each for each in guarded.audit() if each["event"] == "refused"]
    reasons = [each["reason"] for each in denied if each["user"] == "other"]
    assert reasons == ["write on queue 'bad'"]
