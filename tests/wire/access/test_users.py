"""The users of a running broker: reloaded, with limits of their own (A1, A5)."""

import subprocess
import sys

import grpc
import pytest

import ackq_broker
from ackq import errors
from ackq.v1 import sessions_pb2
from ackq_broker.security import users_editor
from tests.eventually import eventually
from tests.fakes.raw_client import TIMEOUT_S, error_of, holder, reflected, refused_with
from tests.wire.access.conftest import Guarded, all_on
from tests.wire.operations.processes import run


def opened(client):
    """Opens a publisher, and ends it."""
    with client.publisher():
        return True


def publishes(client, refusal):
    """Whether a client can open a publisher; False if it is refused with this error.

    An opening that a change of its user ends (A1) is repeated, as clients do.
    """
    try:
        return opened(client)
    except grpc.RpcError as failed:
        error = error_of(failed)[0]
        if isinstance(error, errors.BrokerUnavailableError):
            return publishes(client, refusal)
        if isinstance(error, refusal):
            return False
        raise


@pytest.fixture
def app(guarded):
    """A broker with queue `q`, and a user `app` added while it runs, with all permissions on it."""
    with guarded.client("master") as master:
        master.declare()
    guarded.add("app", **all_on("q.*"))
    return guarded


def test_a_user_that_is_removed(app):
    """A1: a removed user's stream ends within seconds, and its next call is refused."""
    with (
        app.client("app") as client,
        app.client("master") as master,
        client.publisher() as stream,
        master.publisher() as other,
    ):
        users_editor.remove(app.path, "app")
        refused_with(errors.UnauthenticatedError, stream.answer)
        assert not app.knows("app")
        other.publish(1, b"a", routing_key="q")
        assert other.confirmed(1) == {1}


def test_a_user_that_is_removed_while_it_waits(app):
    """A1, S4: an advance that waits for messages leases none for a user that is removed."""
    with app.client("app") as client, app.client("master") as master:
        reader = holder()
        request = sessions_pb2.AdvanceRequest(
            session="s",
            holder=reader,
            queues=["q"],
            incarnation=client.advance(reader).incarnation,
            wait_ms=10_000,
        )
        answer = client.sessions.Advance.future(request, timeout=TIMEOUT_S)
        eventually("the advance, which proves its session", lambda: master.session().proven)
        users_editor.remove(app.path, "app")
        eventually("the removal", lambda: not app.knows("app"))
        master.publish(b"a")
        if (failed := answer.exception()) is not None:  # else it had waited long enough
            assert type(error_of(failed)[0]) is errors.UnauthenticatedError
        assert master.queue("q").ready == 1


@pytest.mark.parametrize("held", ["a consumer", "a waiting pull"])
def test_a_user_that_may_not_read_any_more(app, held):
    """A1, C9, C11: a changed user's stream ends as unavailable, and its channel is not resumed.

    New streams have the new permissions.
    """
    with app.client("app") as client, app.client("master") as master:
        master.publish(b"a", b"b")
        with client.consume(window_messages=1) as channel:
            if held == "a consumer":
                channel.subscribe()
            else:
                channel.get(2)
                assert channel.deliveries(1)[0].body == b"a"
            text = app.path.read_text()
            app.path.write_text(text.replace('read = "q.*"', 'read = "other"'))
            error, _ = channel.refusal()
            assert isinstance(error, errors.BrokerUnavailableError)
            with pytest.raises(grpc.RpcError) as refused, client.consume(channel.channel_id):
                pass
        with client.consume() as again:
            again.subscribe()
            error, _ = again.refusal()
    for each in (error, error_of(refused.value)[0]):
        assert each.fields == {"permission": "read on queue 'q'"}


def test_a_file_without_users(tmp_path):
    """A1: a broker starts with an empty users file, logs that, and accepts users added later."""
    path = tmp_path / "users.toml"
    path.write_text("")
    env = {"ACKQ_BROKER_USERS": str(path)}
    with ackq_broker.embedded(tmp_path / "data", sync=False, env=env) as broker:
        assert "there are no users, so every call is refused" in broker.log_file.read_text()
        Guarded(broker, path, {}).add("app")


def test_a_broken_file_changes_nothing(app):
    """A1: an invalid users file changes nothing, and one log line says what is wrong."""
    app.path.write_text(text := app.path.read_text() + "\n[users.broken]\nrole = 'king'\n")
    read = app.broker.log_file.read_text
    eventually("the refusal", read, lambda log: "is wrong about user 'broken'" in log)
    assert app.knows("app")
    app.path.write_text(text.replace("king", "observer"))
    log = eventually("the new user", read, lambda log: "3 users, 1 of them new" in log)
    assert log.count("is wrong about user 'broken'") == 1


def user(path, command, *arguments):
    """Runs a command for users on a users file; returns its exit status and both outputs."""
    return run("user", command, "--users", path, *arguments)


def reflects(client):
    """Whether reflection answers."""
    try:
        return bool(list(reflected(client)))
    except grpc.RpcError:
        return False


def test_limits_of_a_user(guarded):
    """A5: a user's limits on streams, connections, queues and staged bytes affect it alone."""
    limits = {"streams": 2, "connections": 1, "queues": 2, "staged_bytes": 100_000}
    for name, most in limits.items():
        guarded.add(name, **all_on("q.*"), **{name: most})
    with guarded.client("master") as master, guarded.client("streams") as client:
        master.declare()
        with client.publisher(), client.publisher():
            told = refused_with(errors.LimitError, opened, client).message
            assert told.startswith("The user 'streams' is at its limit of 2 streams.")
            with pytest.raises(grpc.RpcError) as asked:
                list(reflected(client))
            assert asked.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            with master.publisher():
                pass
        eventually("room for reflection", lambda: reflects(client))
        with guarded.client("connections") as one, guarded.client("connections") as two:
            with one.publisher(), one.publisher():
                told = refused_with(errors.LimitError, opened, two).message
                assert "limit of 1 connections" in told
            # The broker notices a moment later that the other client's streams have ended.
            eventually("room for a connection", lambda: publishes(two, errors.LimitError))
        with guarded.client("queues") as limited:
            limited.declare("q2")
            limited.declare("q2")
            refused_with(errors.LimitError, limited.declare, "q3")
        with guarded.client("staged_bytes") as writer:
            size = 60_000
            writer.stage([b"x" * size], stage_id=b"1" * 16, seal=(1, size + 1))
            second = {"stage_id": b"2" * 16, "seal": (1, size + 1)}
            told = refused_with(errors.LimitError, writer.stage, [b"x" * size], **second).message
            assert "limit of 100000 staged bytes" in told
            writer.commit((b"1" * 16, 1, size + 1), target="queue/q")
            writer.stage([b"x" * size], stage_id=b"3" * 16, batch_id=1, seal=(1, size + 1))


def test_the_commands_for_users(tmp_path):
    """A1: `user add` shows a token once; users are listed and removed, and comments stay."""
    path = tmp_path / "users.toml"
    status, token, _ = user(path, "add", "app", "--read", "orders|orders\\..*")
    assert status == 0
    assert token.startswith("ackq_")
    assert token.strip() not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# of the shop\n" + path.read_text())
    assert user(path, "add", "ops", "--role", "operator", "--max-streams", 5)[0] == 0
    status, listed, _ = user(path, "list")
    assert listed.splitlines() == [
        r"app role=none configure='' write='' read='orders|orders\\..*'",
        "ops role=operator configure='' write='' read='' streams=5",
    ]
    assert user(path, "add", "app")[::2] == (
        2,
        "ackq-broker: There is a user 'app' already; remove it first.\n",
    )
    assert user(path, "remove", "app")[0] == 0
    assert path.read_text().startswith("# of the shop\n")
    assert "app" not in path.read_text()
    assert user(path, "remove", "app")[0] == 2


@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_a_token_that_nobody_was_told_is_not_valid(tmp_path, output):
    """A1: `user add` and `set-token` whose output goes nowhere leave the file as it is."""
    path = tmp_path / "users.toml"
    assert user(path, "add", "app")[0] == 0
    before = path.read_text()
    for words in (("add", "new"), ("set-token", "app")):
        program = "from ackq_broker.cli import main; main()"
        line = [sys.executable, "-c", program, "user", *words, "--users", str(path)]
        shell = ["/bin/sh", "-c", f'exec "$@" {output}', "sh", *line]
        done = subprocess.run(shell, check=False, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2
        assert "standard output" in done.stderr
        assert (path.read_text(), [*tmp_path.iterdir()]) == (before, [path])


def test_a_token_that_is_changed_while_programs_run(app):
    """A1: a token is changed without a restart: both are valid until the old one is ended."""
    old = app.tokens["app"]
    status, new, _ = user(app.path, "set-token", "app", "--keep-old")
    app.tokens.update(old=old, new=new.strip())
    eventually("the new token", lambda: app.knows("new"))
    assert (status, app.knows("old")) == (0, True)
    assert user(app.path, "set-token", "app", "--end-old")[:2] == (
        0,
        "user app: only the newest token is valid now\n",
    )
    eventually("the old token's end", lambda: not app.knows("old"))
    assert app.knows("new")
    app.tokens["newest"] = user(app.path, "set-token", "app")[1].strip()
    eventually("the newest token", lambda: app.knows("newest"))
    assert not app.knows("new")


def test_permissions_that_are_changed(app):
    """A1, A2: `set-permissions` changes only given fields; an invalid pattern changes nothing."""
    line = "app role=observer configure='q.*' write='' read='q.*'\n"
    changed = user(app.path, "set-permissions", "app", "--write", "", "--role", "observer")
    assert changed == (0, line, "")
    with app.client("app") as client:
        eventually("the change", lambda: not publishes(client, errors.PermissionDeniedError))
    before = app.path.read_text()
    status, _, said = user(app.path, "set-permissions", "app", "--read", "(?=a)")
    assert (status, "not a regular expression of RE2" in said) == (2, True)
    status, _, said = user(app.path, "set-permissions", "app")
    assert (status, "Give what changes" in said) == (2, True)
    assert app.path.read_text() == before
    assert app.knows("app")


def test_a_queue_that_joins_a_waiting_session(app):
    """A2, S10: messages of a queue that joins a waiting session's pattern need its permission."""
    fields = {"queues": [], "queue_pattern": "*q", "max_messages": 10}
    with app.client("app") as client, app.client("master") as master:
        reader = holder()
        incarnation = client.advance(reader, **fields).incarnation
        request = sessions_pb2.AdvanceRequest(
            session="s", holder=reader, incarnation=incarnation, wait_ms=10_000, **fields
        )
        answer = client.sessions.Advance.future(request, timeout=TIMEOUT_S)
        eventually("the advance, which proves its session", lambda: master.session().proven)
        assert not answer.done()
        master.declare("secret-q")
        master.publish(b"secret", queue="secret-q")
        master.publish(b"a")
        assert answer.result().end_tag == 0
        assert master.queue("secret-q").ready == 1
        refused_with(errors.PermissionDeniedError, client.sessions.Advance, request)
