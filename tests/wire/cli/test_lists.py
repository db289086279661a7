"""Lists of queues and messages: filtered, paged and sorted, fetching no more than is shown."""

import json

import pytest

from ackq.cli.failure import ExitStatus
from ackq.client import Admin, admin
from ackq.v1 import admin_pb2
from tests.wire.cli.conftest import failed, read


@pytest.fixture(scope="module")
def filled(endpoint):
    """Queues l.0 to l.6; the first three hold 3, 2 and 1 messages."""
    from click.testing import CliRunner

    from ackq.cli.commands import ackq

    client = Admin(endpoint)
    for number in range(7):
        client.declare_queue(f"l.{number}")
    for number, bodies in enumerate(("a\nb\nc\n", "long body\nb\n", "c\n")):
        arguments = ["--endpoint", endpoint, "publish", f"l.{number}"]
        assert CliRunner().invoke(ackq, arguments, input=bodies).exit_code == 0


def names(run, *options):
    return [each["queue"] for each in read(run("queue", "list", *options, "--json"))]


@pytest.mark.usefixtures("filled")
def test_queues_are_listed_by_pattern_state_and_order(run):
    """Q5: `queue list` filters by pattern and state, sorts, limits, and continues after a name."""
    everything = [f"l.{number}" for number in range(7)]
    assert names(run, "--name", "l.*") == everything
    assert names(run, "--name", "l.?", "--not-empty") == everything[:3]
    assert names(run, "--name", "l.*", "--sort", "bytes", "-n", "2") == ["l.1", "l.0"]
    assert names(run, "--name", "l.*", "--sort", "ready", "-n", "3") == everything[:3]
    assert names(run, "--name", "l.*", "-n", "2") == everything[:2]
    assert names(run, "--name", "l.*", "-n", "2", "--after", "l.1") == everything[2:4]
    assert names(run, "--name", "nothing*") == []


@pytest.mark.usefixtures("filled")
def test_a_list_comes_in_pages(endpoint, monkeypatch):
    """Q5, I6: pages begin after the last name of the previous one, and add up to the whole list."""
    client = Admin(endpoint)
    whole = [each.queue for each in client.queues("l.*")]
    pages = []
    call = client._call

    def counted(method, request, response):
        answer = call(method, request, response)
        pages.append([each.queue for each in answer.queues])
        return answer

    monkeypatch.setattr(client, "_call", counted)
    monkeypatch.setattr(admin, "_PAGE", 3)
    assert [each.queue for each in client.queues("l.*")] == whole
    assert [len(page) for page in pages] == [3, 3, 1]
    pages.clear()
    assert [each.queue for each in client.queues("l.*", limit=4)] == whole[:4]
    assert [len(page) for page in pages] == [3, 3]


@pytest.mark.usefixtures("filled")
def test_a_page_of_which_nothing_may_be_shown_ends_no_list(endpoint, monkeypatch):
    """Q5: a page whose queues are all hidden from the user does not end the list."""
    client = Admin(endpoint)
    call = client._call

    def filtered(method, request, response):
        answer = call(method, request, response)
        shown = [each for each in answer.queues if each.queue in {"l.0", "l.5"}]
        return admin_pb2.ListQueuesResponse(queues=shown, more=answer.more)

    monkeypatch.setattr(client, "_call", filtered)
    monkeypatch.setattr(admin, "_PAGE", 2)
    assert [each.queue for each in client.queues("l.*")] == ["l.0", "l.5"]
    assert [each.queue for each in client.queues("l.*", limit=1)] == ["l.0"]


@pytest.mark.usefixtures("filled")
def test_a_client_that_knows_no_pages_gets_all(endpoint):
    """Q5: an empty request, as of older clients, gets every queue in one answer."""
    client = Admin(endpoint)
    request, answer = admin_pb2.ListQueuesRequest(), admin_pb2.ListQueuesResponse
    found = client._call("AdminService/ListQueues", request, answer)
    assert [each.queue for each in found.queues] == [each.queue for each in client.queues()]
    assert found.more is False


@pytest.fixture
def dead(admin, run, request):
    """A dead-letter queue with a, rejected for a reason, and c, which was published to it."""
    name = request.node.name
    admin.declare_queue(f"{name}-dead")
    admin.declare_queue(name, dead_letter_queue=f"{name}-dead")
    run("publish", name, "a", "--message-id", "1")
    run("consume", name, "-n", "1", "--outcome", "rejected", "--reason", "no price")
    run("publish", f"{name}-dead", "c")
    return f"{name}-dead"


def test_peek_says_why_a_letter_died(run, dead):
    """C13, Q5: `queue peek` shows a dead letter's cause, reason, queue, age and count."""
    header, first, second = run("queue", "peek", dead).stdout.splitlines()
    assert header.split() == [
        *("POSITION", "LEASED", "DELIVERIES", "ROUTING", "KEY", "MESSAGE", "ID"),
        *("DIED", "OF", "FROM", "AGO", "TIMES", "BODY"),
    ]
    assert "rejected: no price" in first
    assert first.split()[-1] == "a"
    assert second.split()[-5:] == ["-", "-", "-", "-", "c"]
    letter, other = read(run("queue", "peek", dead, "--json"))
    died = letter["dead_letter"]
    assert (died["cause"], died["reason"], died["queue"]) == (
        *("rejected", "no price"),
        dead.removesuffix("-dead"),
    )
    assert (died["position"], died["deliveries"], died["count"]) == (1, 1, 1)
    assert died["at"].endswith("Z")
    assert other["dead_letter"] is None


def test_peek_counts_as_its_json_does(run, dead, open_lease):
    """C7: `queue peek` shows the same delivery counts as text and JSON, leased or ready."""
    open_lease(dead)
    run("publish", dead, "ready")
    table = [line.split()[2] for line in run("queue", "peek", dead).stdout.splitlines()[1:]]
    counts = [row["deliveries"] for row in read(run("queue", "peek", dead, "--json"))]
    assert table == [str(count) for count in counts] == ["1", "1", "0"]


def test_peek_fetches_what_it_shows(run, admin, request, monkeypatch):
    """Q5: `queue peek` fetches under 10 KB of a 10 MB body for the table, and all for JSON."""
    from ackq.client.connection import calls

    name = request.node.name
    admin.declare_queue(name)
    run("publish", name, input="x" * 10_000_000)
    fetched = []
    browse = calls.browse

    def counted(*arguments):
        for frame in browse(*arguments):
            fetched.append(len(frame.block))
            yield frame

    class Counted:
        def __init__(self, *arguments):
            self._frames = counted(*arguments)

        def __iter__(self):
            return self._frames

        def cancel(self):
            self._frames.close()

    monkeypatch.setattr(calls, "browse", Counted)
    assert "… (10000000 bytes)" in run("queue", "peek", name).stdout
    assert sum(fetched) < 10_000
    fetched.clear()
    (row,) = read(run("queue", "peek", name, "--json"))
    assert len(row["body"]) == 10_000_000
    assert sum(fetched) > 10_000_000


def test_redrive_of_some_to_another_queue(run, admin, dead):
    """Q6: `queue redrive` selects by cause and reason, and moves to a named queue."""
    admin.declare_queue(f"{dead}-other")
    none = read(run("queue", "redrive", dead, "--cause", "expired", "--json"))
    assert none == {"queue": dead, "messages": 0, "left": 0}
    options = ("--reason", "no price", "--to", f"{dead}-other", "--count", "5")
    moved = run("queue", "redrive", dead, *options)
    assert moved.stdout == f"queue '{dead}' redriven: messages=1 left=0\n"
    assert admin.queue(f"{dead}-other").ready == 1
    same = run("queue", "redrive", dead, "--to", dead)
    assert "are already in it" in failed(same, ExitStatus.USAGE)
    nowhere = run("queue", "redrive", dead, "--to", "nowhere", "--json")
    error = json.loads(failed(nowhere, ExitStatus.NOT_FOUND))["error"]
    assert (error["code"], error["fields"]) == ("queue_not_found", {"queue": "nowhere"})
