"""The metrics of a broker process, as a monitoring system reads them."""

import socket
from collections import defaultdict

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ackq_broker
from ackq.v1 import links_pb2
from tests.fakes.raw_client import Client, holder
from tests.fakes.raw_link import RawLink
from tests.wire.asking import asked
from tests.wire.dashboard.contents import reject
from tests.wire.operations.test_http import ask


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with ackq_broker.embedded(tmp_path_factory.mktemp("metrics") / "data", http=True) as running:
        yield running


def scrape(broker, path="/metrics"):
    """The samples of a scrape: values by labels, by name; asserts that each family appears once."""
    status, text = ask(broker.http_endpoint, path)
    assert status == 200
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    found = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found[sample.name]
            found[sample.name][labels] = sample.value
    return found


def value(samples, name, **labels):
    """The value of the sample with exactly these labels."""
    return samples[name][tuple(sorted(labels.items()))]


def test_all_queues_together_and_each(broker):
    """M2: totals of all queues have no label; figures of those of a pattern are on another path.

    A deleted queue's counts stay in the totals.
    """
    with Client(broker.endpoint) as client:
        before = scrape(broker)
        client.declare("m.one")
        client.declare("m.two")
        client.declare("m[1]")
        client.publish(b"a", b"b", queue="m.one")
        client.publish(b"c", queue="m.two")
        after, each = scrape(broker), scrape(broker, "/metrics/queues?queue=m.*")
        alone = scrape(broker, "/metrics/queues?queue=m.one")
        bracketed = scrape(broker, "/metrics/queues?queue=m[1]")
        client.delete("m.two", force=True)
    name = "ackq_queue_messages_ready"
    assert value(after, name) - value(before, name) == 3
    assert each[name] == {(("queue", "m.one"),): 2, (("queue", "m.two"),): 1}
    assert bracketed[name] == {(("queue", "m[1]"),): 0}
    published = "ackq_queue_messages_published_total"
    assert value(after, published) - value(before, published) == 3
    assert value(after, "ackq_messages_confirmed_total") >= 3
    assert 0 < value(after, "ackq_queue_oldest_age_seconds") < 600
    queues = {label for values in alone.values() for labels in values for label in labels}
    assert queues == {("queue", "m.one")}
    assert value(scrape(broker), published) == value(after, published)


def test_names_survive_the_format(broker):
    """M2: a queue name with special characters is one label."""
    name = 'quoted "name" back\\slash Größe {a=b} 1'
    with Client(broker.endpoint) as client:
        client.declare(name)
    assert value(scrape(broker, "/metrics/queues"), "ackq_queue_messages", queue=name) == 0


def test_sessions_with_query_and_batch(broker):
    """M2: a session's micro-batch is a value, as a label would begin a series for each."""
    reader = holder()
    with Client(broker.endpoint) as client:
        client.declare("s.q")
        client.publish(b"a", b"b", queue="s.q")
        _, leased = client.open(reader, queues=["s.q"])
        client.fetch(leased, 0, 2, query_id="query", batch_id=7)
        each, together = scrape(broker, "/metrics/queues?queue=s.*"), scrape(broker)
    (info,) = each["ackq_session_info"]
    assert {"queue": "s.q", "session": "s", "query": "query"}.items() <= dict(info).items()
    told = {"batch": 7, "messages_leased": 2, "attaches": 1, "live": 1}
    assert {name: value(each, f"ackq_session_{name}", session="s") for name in told} == told
    assert value(together, "ackq_session_messages_leased") == 2
    assert 0 < value(together, "ackq_session_lease_age_seconds") < 600


def test_links_together_and_each(broker):
    """L26: links have metrics of their counts, and of their processes' reports while they run."""
    with Client(broker.endpoint) as client:
        client.declare("l.q")
        link = RawLink(client, link="orders", queue="l.q", source="amqp://there/orders")
        subscription = link.subscribe()
        link.deliver(subscription, 1, [1, 2, 3])
        link.stored()
        report = links_pb2.LinkReport(window_messages=500, lives_left=17, limited_by="tides")
        beat = links_pb2.LinkHeartbeat(subscription=subscription, report=report)
        link.send(heartbeat=beat)
        assert next(link.call).HasField("state")
        each, together = scrape(broker, "/metrics/queues?queue=l.*"), scrape(broker)
        others = scrape(broker, "/metrics/queues?queue=none")
        link.close()
        gone = scrape(broker, "/metrics/queues?queue=l.*")
    told = {"messages_taken_total": 3, "messages_held": 3, "live": 1, "window_messages": 500}
    for samples, labels in ((each, {"link": "orders"}), (together, {})):
        for name, expected in {**told, "lives_left": 17}.items():
            assert value(samples, f"ackq_link_{name}", **labels) == expected
        assert 0 < value(samples, "ackq_link_held_oldest_age_seconds", **labels) < 600
    assert value(together, "ackq_links") == 1
    assert value(together, "ackq_streams", kind="link") == 1
    (info,) = each["ackq_link_info"]
    known = {"link": "orders", "queue": "l.q", "source": "amqp://there/orders", "host": "h"}
    assert dict(info) == {**known, "limited_by": "other"}
    assert "ackq_link_live" not in others
    assert value(gone, "ackq_link_live", link="orders") == 0
    assert value(gone, "ackq_link_lives_left", link="orders") == -1


def test_dead_letters_have_their_cause(broker):
    """M2, C13: all causes of dead letters are present from the start, so that rates work."""
    with Client(broker.endpoint) as client:
        client.declare("d.dead")
        client.declare("d.q", dead_letter_queue="d.dead")
        reject(client, "d.q", "why")
    samples = scrape(broker)
    name = "ackq_queue_messages_dead_lettered_total"
    assert {dict(labels)["cause"] for labels in samples[name]} == {
        *("rejected", "delivery_limit", "expired")
    }
    assert value(samples, name, cause="rejected") == 1
    each = scrape(broker, "/metrics/queues?queue=d.q")
    assert value(each, name, cause="rejected", queue="d.q") == 1


def test_the_syncs_of_the_journal(broker):
    """M2: the last bucket of the journal's sync histogram counts all syncs."""
    with Client(broker.endpoint) as client:
        client.declare("h")
        before = scrape(broker)
        client.publish(b"a", queue="h")
        after = scrape(broker)
    name = "ackq_journal_sync_seconds"
    assert value(after, f"{name}_count") > value(before, f"{name}_count")
    assert value(after, f"{name}_bucket", le="+Inf") == value(after, f"{name}_count")
    counts = {float(le): count for ((_, le),), count in after[f"{name}_bucket"].items()}
    assert sorted(counts.values()) == [counts[le] for le in sorted(counts)]


def test_the_reserve_is_the_configured_one():
    """P8, M2: the alert on a full disk compares with the reserve that the broker keeps."""
    env = {"ACKQ_BROKER_RESERVE": "3GiB"}
    with ackq_broker.embedded(env=env, http=True) as running:
        assert value(scrape(running), "ackq_disk_reserve_bytes") == 3 << 30


def test_openmetrics_on_request(broker):
    """M2: a scraper that requests the OpenMetrics format gets it."""
    accept = "application/openmetrics-text;version=1.0.0"
    _, headers, text = asked(broker.http_endpoint, "/metrics", Accept=accept)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_a_slow_reader_holds_up_no_other(broker):
    """M2, I6: a scraper that does not read its answer does not delay the next scrape."""
    with Client(broker.endpoint) as client:
        for number in range(1_000):  # 4 MB, more than sockets hold
            client.declare(f"slow.{number}.{'x' * 200}")
    host, port = broker.http_endpoint.split(":")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        slow.sendall(b"GET /metrics/queues HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert len(scrape(broker, "/metrics/queues?queue=slow.*")["ackq_queue_messages"]) == 1_000
