"""Lists of queues in pages, and a peek: they fetch no more than is shown."""

import pytest

from ackq.client import Admin, admin
from ackq.v1 import admin_pb2
from tests.wire.cli.conftest import read


@pytest.fixture(scope="module", autouse=True)
def _declared(endpoint):
    """Queues l.0 to l.6."""
    client = Admin(endpoint)
    for number in range(7):
        client.declare_queue(f"l.{number}")


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


def test_peek_fetches_what_it_shows(run, orders, monkeypatch):
    """Q5: `queue peek` fetches under 10 KB of a 10 MB body for the table, and all for JSON."""
    from ackq.client.connection import calls

    run("publish", orders, input="x" * 10_000_000)
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
    assert "… (10000000 bytes)" in run("queue", "peek", orders).stdout
    assert sum(fetched) < 10_000
    fetched.clear()
    (row,) = read(run("queue", "peek", orders, "--json"))
    assert len(row["body"]) == 10_000_000
    assert sum(fetched) > 10_000_000
