"""Publishes without permission: each is refused by itself, in every client (A3, P8)."""

import pyarrow as pa
import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.client import Publisher, Security, TransactionalPublisher
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


@pytest.mark.parametrize("rows", [3, 20_000])
def test_a_batch(guarded, endpoint, security, rows):
    """A3: no message of a frame with a denied row is stored; frames of allowed rows are."""
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 100] * rows})
    with Publisher(endpoint, security=security) as publisher:
        good = publisher.publish_batch(batch, routing_key="good")
        bad = publisher.publish_batch(batch, routing_key="bad")
        good.result(60)
        with pytest.raises(PermissionDeniedError):
            bad.result(60)
        with pytest.raises(PermissionDeniedError):
            publisher.flush()
    assert published(guarded) == [rows, 0]


def test_a_transaction(guarded, endpoint, security):
    """P13: a commit with a denied message is refused whole, and the next transaction goes on."""
    with TransactionalPublisher(endpoint, security=security) as publisher:
        for key in ("good", "bad"):
            publisher.publish(b"x", routing_key=key)
        with pytest.raises(PermissionDeniedError):
            publisher.commit()
        assert published(guarded) == [0, 0]
        publisher.publish(b"x", routing_key="good")
        publisher.commit()
    assert published(guarded) == [1, 0]


def test_by_command(guarded, endpoint, security):
    """A3: the exit status of `ackq publish` reports a missing permission."""
    asked = ["--endpoint", endpoint, "publish", "bad", "x"]
    result = CliRunner().invoke(ackq, asked, env={"ACKQ_TOKEN": security.token})
    assert (result.exit_code, published(guarded)) == (ExitStatus.DENIED, [0, 0])
    assert "write on queue 'bad'" in result.output


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
