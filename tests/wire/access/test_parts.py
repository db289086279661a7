"""Calls with several parts: all parts are checked before the first takes effect (A3, O7)."""

import json
import secrets

import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.errors import PermissionDeniedError
from ackq.v1 import admin_pb2
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import denial_in, publish_requests
from tests.wire.access.conftest import all_on, with_master


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker with queues `ok-0` and `other`; the user `app` may use the first alone."""
    with with_master(tmp_path_factory.mktemp("guarded")) as found:
        found.add("app", **all_on("ok-.*"))
        with found.client("master") as master:
            master.declare("ok-0")
            master.declare("other")
        yield found


@pytest.mark.parametrize("rows", [2, 10_001])
@pytest.mark.parametrize("mode", [1, 2])
def test_a_frame_with_a_denied_key(guarded, mode, rows):
    """A3: a frame whose last routing key is denied is stored in no queue, also in several parts."""
    keys = [f"ok-{number}" for number in range(rows - 1)]
    block = encoded(routing_key=[*keys, "secret"], body=[b"x"] * rows)
    data = {"first_number": 1, "rows": rows}
    if mode == 2:
        data |= {"transaction_id": secrets.token_bytes(16), "commit_messages": rows}
    requests = publish_requests((data, block), mode=mode)
    with guarded.client("app") as app, guarded.client("master") as master:
        error = denial_in(app.publishing.Publish(requests))
        assert type(error) is PermissionDeniedError
        assert error.fields["permission"] == "write on queue 'secret'"
        assert master.queue("ok-0").published == 0


def test_an_import_that_cannot_be_made_whole(guarded, tmp_path):
    """O7: an import with a queue that the user cannot declare changes nothing."""
    file = tmp_path / "definitions.json"
    queues = [{"queue": name, "properties": {"durable": True}} for name in ("ok-1", "other")]
    file.write_text(json.dumps({"format": 1, "queues": queues}))
    command = ["--endpoint", guarded.broker.endpoint, "definitions", "import", str(file)]
    ran = CliRunner().invoke(ackq, command, env={"ACKQ_TOKEN": guarded.tokens["app"]})
    assert ran.exit_code == ExitStatus.DENIED
    assert "does not have configure on queue 'other'" in ran.stderr
    with guarded.client("master") as master:
        listed = master.admin.ListQueues(admin_pb2.ListQueuesRequest()).queues
        assert [each.queue for each in listed] == ["ok-0", "other"]
