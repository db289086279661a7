"""`ackq session` against a real broker: showing a lease, and freeing parts of it."""

import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.cli.output import as_dict, print_fields
from ackq.info import SessionInfo
from ackq.v1 import sessions_pb2
from ackq_broker import embedded
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.raw_client import Client, holder
from tests.wire.cli.conftest import failed, read
from tests.wire.sessions.test_sessions import HoldCall


@pytest.fixture
def lease(open_lease, admin, run, request):
    """A session with five leased messages, named after its queue, with a dead-letter queue."""
    name = request.node.name.partition("[")[0]
    admin.declare_queue(f"{name}-dead")
    admin.declare_queue(name, dead_letter_queue=f"{name}-dead")
    run("publish", name, input="a\nb\nc\nd\ne\n")
    open_lease(name)
    yield name
    run("session", "release", name, "--fence")
    admin.delete_queue(name, force=True)
    admin.delete_queue(f"{name}-dead", force=True)


def leased(run, name, *options):
    """The tags and bodies of a lease, from the command's JSON."""
    rows = read(run("session", "lease", name, *options, "--json"))
    return [(row["delivery_tag"], row["body"]) for row in rows]


def test_lease_shows_its_messages(run, lease):
    """S8: `session lease` shows tag, queue, deliveries and body, and consumes nothing."""
    assert leased(run, lease) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    lines = run("session", "lease", lease, "--tags", "2, 4-9,5", "--limit", "2").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["2", lease, "1", lease, "b"],
        ["4", lease, "1", lease, "d"],
    ]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [("1", "a"), ("2-3", "bc"), ("3,1", "ac"), ("1-2,2-4", "abcd"), ("5 , 1 - 1", "ae")],
)
def test_tags_are_ranges(run, lease, tags, expected):
    """S8: `--tags` takes ranges such as `5,7-9`, in any order, and shows each message once."""
    assert "".join(body for _, body in leased(run, lease, "--tags", tags)) == expected


@pytest.mark.parametrize("tags", ["", "x", "1,", "0", "3-2", "1-2-3", "-1", "9223372036854775808"])
def test_bad_tags_are_a_usage_error(run, tags):
    """S8: invalid `--tags` are a usage error that names the wrong part, or the syntax."""
    result = run("session", "reject", "s", "--tags", tags)
    assert result.exit_code == 2
    assert "--tags" in result.stderr
    assert "write 5,7-9" in result.stderr or "tags begin at 1" in result.stderr


def test_reject_needs_tags(run):
    """S8: `session reject` needs `--tags`, so that no whole lease is rejected by omission."""
    result = run("session", "reject", "s")
    assert (result.exit_code, "--tags" in result.stderr) == (2, True)


def test_reject_moves_messages_to_the_dead_letter_queue(run, lease):
    """S8: `session reject` dead-letters with the reason, and with a live reader needs --fence."""
    refused = run("session", "reject", lease, "--tags", "2,4-5")
    assert "--fence" in failed(refused)
    done = run("session", "reject", lease, "--tags", "2,4-5", "--reason", "no JSON", "--fence")
    assert done.stdout == (f"session '{lease}': 3 messages rejected, 3 to a dead-letter queue\n")
    assert leased(run, lease) == [(1, "a"), (3, "c")]
    rows = read(run("queue", "peek", f"{lease}-dead", "--json"))
    assert [(row["body"], row["headers"]["ackq-dead-reason"]) for row in rows] == [
        ("b", "no JSON"),
        ("d", "no JSON"),
        ("e", "no JSON"),
    ]
    shown = read(run("session", "show", lease, "--json"))
    assert (shown["leased"], shown["holes_by_reason"], shown["live"]) == (2, {"settled": 3}, False)
    assert "settled=3" in run("session", "show", lease).stdout
    row = next(line for line in run("session", "list").stdout.splitlines() if lease in line)
    assert "absent" in row.split()


def test_tags_of_another_incarnation_are_left_alone(run, lease):
    """S8: `--incarnation` protects the tags of a session that was opened again meanwhile."""
    shown = read(run("session", "show", lease, "--json"))["incarnation"]
    for command in ("reject", "release"):
        refused = run(
            "session", command, lease, "--tags", "1", "--fence", "--incarnation", "0" * 32
        )
        assert f"its incarnation is {shown}" in failed(refused)
    assert len(leased(run, lease)) == 5
    done = run("session", "reject", lease, "--tags", "1", "--fence", "--incarnation", shown)
    assert done.stdout == f"session '{lease}': 1 message rejected, 1 to a dead-letter queue\n"


def test_release_of_tags_keeps_the_session(run, lease, admin):
    """S8: released tags are ready again; the session and the rest of its lease stay."""
    done = read(run("session", "release", lease, "--tags", "1-2", "--fence", "--json"))
    assert done == {
        "session": lease,
        "outcome": "released",
        "settled": 2,
        "dead_lettered": 0,
        "epoch": 2,
        "dropped": 0,
    }
    queue = admin.queue(lease)
    assert (queue.ready + queue.delayed, queue.unacked) == (2, 3)
    assert run("session", "release", lease, "--tags", "3").stdout == (
        f"session '{lease}': 1 message released\n"
    )


def test_release_to_a_deleted_queue_says_what_is_gone(run, lease, admin):
    """Q4, S5, S8: release reports messages of a deleted queue as dropped, not as put back."""
    admin.delete_queue(lease, force=True)
    assert run("session", "release", lease, "--tags", "1-2", "--fence").stdout == (
        f"session '{lease}': 2 messages released, 2 dropped, their queue was deleted\n"
    )
    assert run("session", "release", lease).stdout == (
        f"session '{lease}' released: 0 messages put back, 3 dropped, their queue was deleted\n"
    )
    admin.declare_queue(lease)


def test_tags_outside_the_lease_are_refused_in_one_line(run, lease):
    """S8: tags outside the lease are refused in one line with the lowest, and nothing changes."""
    result = run("session", "reject", lease, "--tags", "4-7", "--fence")
    assert result.exit_code == ExitStatus.REFUSED
    assert "6" in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(leased(run, lease)) == 5


def test_reject_without_a_dead_letter_queue_needs_discard(run, open_lease, admin, request):
    """S6, S8: a rejection that would lose a message is refused unless --discard is given."""
    name = request.node.name
    admin.declare_queue(name)
    run("publish", name, input="a\nb\n")
    open_lease(name)
    refused = run("session", "reject", name, "--tags", "1", "--fence")
    assert name in failed(refused)
    done = run("session", "reject", name, "--tags", "1", "--fence", "--discard")
    assert done.stdout == f"session '{name}': 1 message rejected, 1 dropped\n"
    assert leased(run, name) == [(2, "b")]


@pytest.fixture
def ended(tmp_path):
    """A broker on which a session is finished at once, and a raw client; queue `q` has messages."""
    # A holder that sends no heartbeat is live for longer than a test takes, one that is cut is not.
    low = {"FINISHED_SESSION_S": 0, "HEARTBEAT_MS": 1_000_000, "HOLDER_CUT_GRACE_MS": 0}
    with (
        embedded(sync=False, env=machine.with_limits(tmp_path, low)) as broker,
        Client(broker.endpoint) as client,
    ):
        client.declare()
        client.publish(b"a", b"b")
        yield broker, client


def test_finished_sessions_are_released(ended):
    """S8: `session release --finished` asks, and spares sessions that are live, leased or named."""
    broker, client = ended

    def run(*arguments):
        given = ["--endpoint", broker.endpoint, "session", "release", "--finished", *arguments]
        return CliRunner().invoke(ackq, given)

    def cut(**fields):
        reader = holder()
        opened = client.advance(reader, **{"session": "", **fields})
        HoldCall(client, opened, reader).call.cancel()
        eventually("its absence", lambda: not client.session(opened.session).live)
        return opened.session

    gone, named, leased = cut(), cut(session="named"), cut(open_and_lease=True)
    live = client.advance(holder(), session="").session
    listed = run("--dry-run")
    assert listed.stdout.splitlines()[1:] == [f"{gone}  q", "1 finished session to release"]
    asked = run()
    assert (asked.exit_code, "nobody can be asked" in asked.stderr) == (2, True)
    assert client.session(gone).session == gone
    assert read(run("--yes", "--json")) == {"sessions": [gone], "released": True}
    assert read(run("--json", "--yes")) == {"sessions": [], "released": True}
    left = client.sessions.ListSessions(sessions_pb2.ListSessionsRequest(finished=True)).sessions
    assert {each.session for each in left} == {named, leased, live}
    assert client.queue().unacked == 2


def test_a_map_is_a_json_object(capsys):
    """A map of the protocol is printed as a JSON object, in a stable order."""
    fields = as_dict(SessionInfo(holes_by_reason={"taken": 2, "expired": 1}))
    assert list(fields["holes_by_reason"].items()) == [("expired", 1), ("taken", 2)]
    print_fields({"holes_by_reason": fields["holes_by_reason"]})
    assert capsys.readouterr().out == "holes_by_reason  expired=1, taken=2\n"
