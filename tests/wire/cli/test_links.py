"""`ackq link` against a real broker: show, pause, drain, remove (L25, L26)."""

import socket
import threading

import pytest

from ackq.cli.failure import ExitStatus
from ackq.client import Broker, Channel, holder
from ackq.v1 import links_pb2 as pb
from ackq_link.edge.outbound import OutboundReporter
from tests.eventually import SOON_S, eventually
from tests.fakes.raw_client import Client
from tests.fakes.raw_link import SOURCE, RawLink
from tests.wire.cli.conftest import failed, read


@pytest.fixture
def link(endpoint, admin, request):
    """A link that holds three messages, named after its queue; its process ends with the test."""
    name = request.node.name.partition("[")[0]
    admin.declare_queue(name)
    with Client(endpoint) as client:
        process = RawLink(client, link=name, queue=name)
        process.deliver(process.subscribe(), 1, [1, 2, 3])
        process.stored()
        process.name = name
        yield process
        process.call.cancel()


def accept(endpoint, queue, count):
    with Channel(endpoint) as channel:
        return len(channel.get(queue, count, no_ack=True))


def test_list_and_show(run, link):
    """L26: `link list` and `link show` print counts and holder, without the holder's token."""
    lines = run("link", "list").stdout.splitlines()
    assert lines[0].split()[:4] == ["LINK", "SOURCE", "QUEUE", "ACK"]
    (line,) = [each for each in lines if each.startswith(f"{link.name} ")]
    assert line.split()[:6] == [link.name, SOURCE, link.name, "settled", "live", "3"]
    shown = read(run("link", "show", link.name, "--json"))
    assert (shown["held"], shown["taken"], shown["live"]) == (3, 3, True)
    assert shown["holder"]["host"] == "h"
    assert "token" not in shown["holder"]
    (reason,) = shown["held_up"]
    assert reason.startswith(f"The link '{link.name}' holds 3 messages, the oldest for")
    text = run("link", "show", link.name).stdout
    assert reason.partition(" for ")[0] in text
    (listed,) = [each for each in read(run("link", "list", "--json")) if each["link"] == link.name]
    assert listed["source"] == SOURCE


def test_pause_and_resume(run, link):
    """L25: `link pause` and `link resume` are idempotent, and say whether anything changed."""
    said = [run("link", verb, link.name).stdout for verb in ("pause", "pause", "resume")]
    assert said == [
        f"link '{link.name}' is paused\n",
        f"link '{link.name}' is paused, as before\n",
        f"link '{link.name}' is not paused\n",
    ]
    changed = read(run("link", "pause", link.name, "--json"))
    assert changed == {"link": link.name, "paused": True, "changed": True}
    assert "ackq link resume" in run("link", "show", link.name).stdout


def test_drain_waits_until_nothing_is_held(run, link, endpoint, admin):
    """L25: `link drain` pauses a link, and waits until consumers settled all it held."""
    late = failed(run("link", "drain", link.name, "--timeout", "0s"))
    assert "still holds 3 messages" in late
    assert admin.link(link.name).paused
    results = []
    waiting = threading.Thread(
        target=lambda: results.append(run("link", "drain", link.name, "--json"))
    )
    waiting.start()
    accept(endpoint, link.name, 3)
    waiting.join(SOON_S)
    drained = read(results[0])
    assert drained == {"link": link.name, "paused": True, "held": 0, "unproven": 3}
    assert run("link", "drain", link.name).stdout == (
        f"link '{link.name}' is drained and paused: 3 acknowledgements not proven\n"
    )


def test_remove(run, link, admin):
    """L25: `link remove` is refused while the link runs, or holds messages without --forget."""
    assert "run by" in failed(run("link", "remove", link.name, "--forget"))
    link.close()
    assert "--forget" in failed(run("link", "remove", link.name))
    said = run("link", "remove", link.name, "--forget").stdout
    assert said == f"link '{link.name}' removed; 3 messages may be delivered again as new ones\n"
    missing = failed(run("link", "show", link.name), ExitStatus.NOT_FOUND)
    assert "ackq link list" in missing
    assert eventually("its messages", lambda: admin.queue(link.name).ready) == 3


def test_an_unknown_link(run):
    """L25: each link command on an unknown link exits with the status of a missing object."""
    for verb in ("show", "pause", "resume", "drain", "remove"):
        assert "There is no link 'none'" in failed(run("link", verb, "none"), ExitStatus.NOT_FOUND)


def test_why_a_queue_waits_for_a_link(run, link):
    """Q9: `ackq why` reports that a queue's link has no process, only while that is so."""
    codes = [each["code"] for each in why(run, link.name)["findings"]]
    assert "link-absent" not in codes
    link.close()
    found = why(run, link.name)["findings"]
    (absent,) = [each for each in found if each["code"] == "link-absent"]
    assert f"'{link.name}' brings no messages from {SOURCE}" in absent["sentence"]


def why(run, queue):
    """The JSON output of `ackq why` for a queue, whatever its exit status."""
    result = run("why", queue, "--json")
    return read(result, result.exit_code)


@pytest.fixture
def outbound(endpoint, admin, request):
    """An outbound link with refusals, named after its queue, which reports while the test runs."""
    name = request.node.name.partition("[")[0]
    admin.declare_queue(name)
    report = pb.OutboundReport(
        link=name,
        queue=name,
        target="amqp://there, queue t",
        holder=holder("test"),
        published=7,
        refused=2,
        limited_by="refusals",
        reason="returned: no queue of the remote broker takes it",
    )
    request = pb.ReportOutboundRequest(report=report)
    with OutboundReporter(Broker(endpoint), lambda: request) as reporter:
        reporter.link = name
        eventually("its report", lambda: shown_outbound(admin, name))
        yield reporter


def shown_outbound(admin, name):
    return [each for each in admin.outbound_links() if each.link == name]


def test_an_outbound_link_is_shown_while_it_runs(run, outbound, admin):
    """L26: a running outbound link is shown with direction, counts and reason, then no longer."""
    name = outbound.link
    (line,) = [each for each in run("link", "list").stdout.splitlines() if each.startswith(name)]
    assert line.split()[1:6] == ["to", "amqp://there,", "queue", "t", name]
    assert line.split()[6:8] == ["-", "refusals"]
    (listed,) = [each for each in read(run("link", "list", "--json")) if each["link"] == name]
    assert (listed["direction"], listed["published"]) == ("out", 7)
    assert "token" not in listed["holder"]
    assert name not in [each.link for each in admin.links()]  # for a client that knows only inbound
    shown = read(run("link", "show", name, "--json"))
    (reason,) = shown["held_up"]
    assert reason.startswith(
        f"The link '{name}' publishes queue '{name}' to amqp://there, queue t,"
    )
    assert reason.endswith(
        "2 refusals, 0 messages that can never be published, 0 cuts; the last reason:"
        " returned: no queue of the remote broker takes it."
    )
    assert shown["outbound"][0]["refused"] == 2
    text = run("link", "show", name).stdout
    assert reason in text
    assert ["refused", "2"] in [each.split() for each in text.splitlines()]
    outbound.close()
    eventually("its absence", lambda: not shown_outbound(admin, name))
    assert "There is no link" in failed(run("link", "show", name), ExitStatus.NOT_FOUND)


def test_an_outbound_link_is_stopped_where_it_runs(run, outbound):
    """L25: commands for inbound links refuse an outbound one, and name its process's host."""
    for verb in ("pause", "resume", "drain", "remove"):
        said = failed(run("link", verb, outbound.link))
        assert f"The link '{outbound.link}' is outbound" in said
        assert f"stop the process with Ctrl-C or SIGTERM: {socket.gethostname()}" in said


def test_why_a_queue_waits_for_an_outbound_link(run, outbound):
    """Q9, L26: `ackq why` names the outbound link that a queue waits for, with the reason."""
    (found,) = [
        each for each in why(run, outbound.link)["findings"] if each["code"] == "link-out-refused"
    ]
    assert found["severity"] == "warning"
    assert "no queue of the remote broker takes it" in found["sentence"]
