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
            master.declare("other", message_ttl_ms=1000)
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


def test_a_declaration_that_is_only_checked(guarded):
    """O7: a declaration or binding with `check` is answered as if done, and changes nothing."""
    with guarded.client("master") as master:
        request = admin_pb2.DeclareQueueRequest(queue="new", check=True)
        assert master.admin.DeclareQueue(request).created
        exchange = admin_pb2.DeclareExchangeRequest(exchange="x", type=1, check=True)
        assert master.admin.DeclareExchange(exchange).created
        assert master.admin.DeclareQueue(request).created
        master.admin.DeclareExchange(admin_pb2.DeclareExchangeRequest(exchange="x", type=1))
        binding = admin_pb2.BindRequest(exchange="x", queue="ok-0", binding_key="k", check=True)
        assert master.admin.Bind(binding).created
        assert master.admin.Bind(binding).created


@pytest.mark.parametrize(
    ("user", "told", "status"),
    [
        ("app", "does not have configure on queue 'other'", ExitStatus.DENIED),
        ("master", "message_ttl_ms is 1000, asked for 0.", ExitStatus.REFUSED),
    ],
)
def test_an_import_that_cannot_be_made_whole(guarded, tmp_path, user, told, status):
    """O7: an import with a queue that the user cannot declare, or that differs, changes nothing."""
    file = tmp_path / "definitions.json"
    queues = [{"queue": name, "properties": {"durable": True}} for name in ("ok-1", "other")]
    file.write_text(json.dumps({"format": 1, "queues": queues}))
    command = ["--endpoint", guarded.broker.endpoint, "definitions", "import", str(file)]
    ran = CliRunner().invoke(ackq, command, env={"ACKQ_TOKEN": guarded.tokens[user]})
    assert ran.exit_code == status
    assert told in ran.stderr
    with guarded.client("master") as master:
        listed = master.admin.ListQueues(admin_pb2.ListQueuesRequest()).queues
        assert [each.queue for each in listed] == ["ok-0", "other"]
