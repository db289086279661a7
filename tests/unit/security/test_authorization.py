"""Authorization of calls: who calls, what is checked, what is shown and audited."""

import asyncio
import json
from contextlib import nullcontext

import pytest

from ackq.errors import BrokerUnavailableError, QueueNotFoundError, UnauthenticatedError
from ackq.v1 import admin_pb2
from ackq_broker.core import Core
from ackq_broker.security import users
from ackq_broker.security.authorization import Authorization, bearer
from ackq_broker.security.users_file import UsersFile

PURGE = "ackq.v1.AdminService.PurgeQueue"
PEER = "ipv4:10.0.0.1:4711"
TOKEN = users.new_token()


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "users.toml"
    file.write_text(f"[users.app]\ntokens = ['{users.hash_of(TOKEN)}']\nread = 'q'\n")
    return file


@pytest.fixture
def guarded(path):
    return Authorization(Core().state, UsersFile(path))


async def done(answer=None, error=None):
    if error is not None:
        raise error
    return answer


@pytest.mark.parametrize(
    ("error", "result"), [(None, "done"), (QueueNotFoundError("x"), "queue_not_found")]
)
async def test_a_cancelled_act_is_written_down_as_it_ended(guarded, caplog, error, result):
    """A8: an act goes on when its caller cancels the call, and its audit line has its result."""
    app, request = guarded.authenticate(TOKEN, PEER), admin_pb2.PurgeQueueRequest(queue="q")
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        await goes_on.wait()
        await done(error=error)

    call = asyncio.create_task(guarded.audited(app, PURGE, request, work()))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert caplog.records == []
    goes_on.set()
    (act,) = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait([act])
    (line,) = (json.loads(record.getMessage()) for record in caplog.records)
    assert line["result"] == result


@pytest.mark.parametrize(
    ("read", "refusal"),
    [(None, UnauthenticatedError), ("q.*", BrokerUnavailableError), ("q", None)],
)
def test_a_request_that_comes_late(guarded, path, read, refusal):
    """A1: it is checked for its user as that is now, though the call began before."""
    app, request = guarded.authenticate(TOKEN, PEER), admin_pb2.PurgeQueueRequest(queue="q")
    text = path.read_text() + "[users.other]\nrole = 'operator'\n"
    path.write_text("" if read is None else text.replace("read = 'q'", f"read = '{read}'"))
    guarded.reload()
    with pytest.raises(refusal) if refusal else nullcontext():
        guarded.check(app, PURGE, request)


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Bearer ackq_x", "ackq_x"),
        ("bearer  ackq_x ", "ackq_x"),
        ("Basic ackq_x", None),
        ("ackq_x", None),
        (b"Bearer ackq_x", None),
        (None, None),
    ],
)
def test_the_token_of_a_call(value, token):
    """A1: the token of a call is read from the `authorization: Bearer` metadata, as in HTTP."""
    assert bearer({} if value is None else {"authorization": value}) == token
