"""Settlement by the client against the reference broker, over kills: S6, S8, K8."""

import secrets
import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

from ackq.client import Publisher, Session, holder, outcome_group
from ackq.v1 import sessions_pb2 as pb

OWNER = pb.LeaseOwner(query_id="query", run_id="run", batch_id=7)


@pytest.fixture
def admin(admin):
    admin.declare_queue("dead")
    admin.declare_queue("orders", dead_letter_queue="dead")
    return admin


@pytest.fixture
def session(broker):
    return Session(broker.endpoint)


@pytest.fixture
def advance(broker, admin, session):
    """Returns a function that advances session `s`, on a queue with the messages `0` to `9`."""
    assert admin.queue("orders").ready == 0
    with Publisher(broker.endpoint, routing_key="orders") as publisher:
        for number in range(10):
            publisher.publish(str(number))
    fields = {"session": "s", "queues": ["orders"], "holder": holder()}
    fields["incarnation"] = session.advance(pb.AdvanceRequest(**fields)).incarnation

    def call(start=0, **other):
        return session.advance(pb.AdvanceRequest(**{**fields, "start_tag": start, **other}))

    return call


@contextmanager
def gone(broker):
    """Kills the broker, and restarts it while calls are retried."""
    broker.kill()
    back = threading.Timer(0.3, broker.restart)
    back.start()
    yield
    back.join()


def fetched(session, lease):
    request = pb.FetchRequest(
        session="s",
        incarnation=lease.incarnation,
        epoch=lease.epoch,
        last_tag=lease.end_tag,
        query_id=OWNER.query_id,
        run_id=OWNER.run_id,
        batch_id=OWNER.batch_id,
    )
    batches = session.fetch(request, ["delivery_tag", "body"])
    return [(row["delivery_tag"], row["body"]) for each in batches for row in each.to_pylist()]


def tags(*values):
    return pa.array(values, pa.int64())


def test_settlement_outlives_killed_brokers(broker, admin, session, advance):
    """S6: stage, commit and accept are retried over kills, and take effect once."""
    lease = advance()
    rows = fetched(session, lease)
    first = [[outcome_group("rejected", tags(2, 3), "bad")], [outcome_group("failed", tags(4))]]
    second = [[outcome_group("accepted", tags(3)), outcome_group("rejected", tags(9), "worse")]]
    with gone(broker):
        stages = [
            session.stage_outcomes(OWNER, secrets.token_bytes(16), f"{at}", groups)
            for at, groups in enumerate((first, second))
        ]
    assert [stage.tags for stage in stages] == [3, 2]
    with gone(broker):
        assert session.commit_outcomes(OWNER, stages).tags == 5
    # The second task took back tag 3's outcome.
    assert admin.session("s").settled == 3
    with gone(broker):
        advance(lease.end_tag)
    dead = [
        (row["body"], dict(row["headers"])["ackq-dead-reason"])
        for batch in admin.browse("dead", columns=["body", "headers"])
        for row in batch.to_pylist()
    ]
    assert dead == [(b"1", "bad"), (b"8", "worse")]
    orders = admin.queue("orders")
    assert (orders.accepted, orders.unacked, orders.ready + orders.delayed) == (7, 0, 1)
    # K2: the batch is run again after its commit entry was lost, and has the same rows.
    assert fetched(session, lease) == rows
