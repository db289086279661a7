"""Authorization of calls: who calls, what is checked, what is shown and audited."""

import asyncio
import json

import pytest

from ackq.errors import PermissionDeniedError, QueueNotFoundError, UnauthenticatedError
from ackq.v1 import admin_pb2
from ackq_broker.core import Core
from ackq_broker.security import users
from ackq_broker.security.authorization import Authorization, bearer
from ackq_broker.security.callers import Caller
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


def test_without_users_everybody_may_do_everything():
    """A1, A2: without a users file every call is permitted, with a token or without."""
    everything = Authorization()
    caller = everything.authenticate("anything", PEER)
    assert caller is everything.authenticate(None, PEER) is Caller.anonymous
    assert not everything.required
    everything.check(caller, "no.such.Method", None)


def test_a_token_proves_its_user(guarded):
    """A1: a token authenticates its user; a missing or unknown token is refused."""
    assert guarded.authenticate(TOKEN, PEER).name == "app"
    for token, said in ((None, "has no token"), ("", "belongs to no user"), ("x", "to no user")):
        with pytest.raises(UnauthenticatedError, match=said):
            guarded.authenticate(token, PEER)


def test_requests_are_checked(guarded):
    """A2: requests are checked by the permission table; a call that is not in it is refused."""
    app = guarded.authenticate(TOKEN, PEER)
    guarded.check(app, PURGE, admin_pb2.PurgeQueueRequest(queue="q"))
    for method, queue in ((PURGE, "r"), ("ackq.v1.AdminService.New", "q")):
        with pytest.raises(PermissionDeniedError):
            guarded.check(app, method, admin_pb2.PurgeQueueRequest(queue=queue))


def test_new_users_count_at_once(guarded, path, caplog):
    """A1: a changed users file counts at the next poll; an invalid one only logs one line."""
    path.write_text(path.read_text().replace("read = 'q'", "read = 'r'"))
    guarded.poll()
    app = guarded.authenticate(TOKEN, PEER)
    guarded.check(app, PURGE, admin_pb2.PurgeQueueRequest(queue="r"))
    path.write_text("x")
    for _ in range(3):
        guarded.poll()
    assert caplog.text.count("The users stay as they were.") == 1
    assert guarded.authenticate(TOKEN, PEER).name == "app"
    path.write_text("")
    assert guarded.reload().startswith("0 users, 0 of them new; 1 changed or removed")
    with pytest.raises(UnauthenticatedError):
        guarded.authenticate(TOKEN, PEER)


async def done(answer=None, error=None):
    if error is not None:
        raise error
    return answer


def test_acts_are_written_down(guarded, caplog):
    """A8: an act is audited whether done or failed; a refusal has a line of its own."""
    app, request = guarded.authenticate(TOKEN, PEER), admin_pb2.PurgeQueueRequest(queue="q")

    def act(work, caller=app, method=PURGE):
        return asyncio.run(guarded.audited(caller, method, request, work))

    assert act(done(7)) == 7
    with pytest.raises(PermissionDeniedError):
        act(done(error=PermissionDeniedError("x")))
    with pytest.raises(QueueNotFoundError):
        act(done(error=QueueNotFoundError("x")))
    act(done(), Caller.anonymous)
    act(done(), method="ackq.v1.AdminService.ListQueues")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["user"], line["call"], line["result"]) for line in lines] == [
        ("app", "AdminService.PurgeQueue", "done"),
        ("app", "AdminService.PurgeQueue", "queue_not_found"),
    ]


@pytest.mark.parametrize(
    ("error", "result"), [(None, "done"), (QueueNotFoundError("x"), "queue_not_found")]
)
def test_a_cancelled_act_is_written_down_as_it_ended(guarded, caplog, error, result):
    """A8: an act goes on when its caller cancels the call, and its audit line has its result."""
    app, request = guarded.authenticate(TOKEN, PEER), admin_pb2.PurgeQueueRequest(queue="q")

    async def cancelled():
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

    asyncio.run(cancelled())
    (line,) = (json.loads(record.getMessage()) for record in caplog.records)
    assert line["result"] == result


def test_whole_lists_are_for_observers(guarded, path):
    """A2, A8: an unfiltered list over HTTP needs the role observer; other calls as usual."""
    method, request = "ackq.v1.AdminService.ListQueues", admin_pb2.ListQueuesRequest()
    app = guarded.authenticate(TOKEN, PEER)
    guarded.check(app, method, request)
    with pytest.raises(PermissionDeniedError, match="the role observer"):
        guarded.check_whole(app, method, request)
    guarded.check_whole(app, PURGE, admin_pb2.PurgeQueueRequest(queue="q"))
    path.write_text(path.read_text() + "role = 'observer'\n")
    guarded.reload()
    guarded.check_whole(guarded.authenticate(TOKEN, PEER), method, request)
    guarded.check_whole(Caller.anonymous, method, request)


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
