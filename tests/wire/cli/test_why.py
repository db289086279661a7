"""`ackq why` against real brokers brought into each state (Q9)."""

import re
import shutil

from ackq.client import Session, holder
from ackq.v1 import sessions_pb2
from tests.eventually import eventually
from tests.fakes.raw_client import holder as raw_holder
from tests.wire.access.conftest import with_master
from tests.wire.cli.conftest import ackq_on, read

# A reader that is not known to be gone counts as live for 15 s.
ABSENCE_S = 200


def findings(run, queue):
    """The findings on a queue by code; asserts that the exit status matches them."""
    result = run("why", queue, "--json")
    found = read(result, result.exit_code)
    assert found["queue"] == queue
    codes = {each["code"]: each for each in found["findings"]}
    problem = any(each["severity"] == "problem" for each in codes.values())
    assert result.exit_code == (0 if not problem else 3 if "queue-missing" in codes else 1)
    return codes


def lease(endpoint, queue, **fields):
    """Leases a queue's messages to a session of its name, whose reader sends no heartbeat."""
    session = Session(endpoint)
    opening = {"session": queue, "queues": [queue], "holder": holder("app"), **fields}
    opened = session.advance(sessions_pb2.AdvanceRequest(**opening))
    request = sessions_pb2.AdvanceRequest(**opening, incarnation=opened.incarnation)
    return session, request, session.advance(request)


def test_a_lease_of_a_live_reader_and_of_one_that_is_gone(run, endpoint, admin):
    """Q9, S3, S5: a lease is shown with its query's batch; without holder, with its timeout."""
    queue = "leased"
    admin.declare_queue(queue)
    run("publish", queue, input="x\n" * 3)
    session, request, reply = lease(endpoint, queue)
    stream = session.hold(queue, reply.incarnation, reply.epoch, request.holder.token)
    assert "None of its rows was read yet" in findings(run, queue)["lease-live"]["sentence"]
    fetched = sessions_pb2.FetchRequest(
        session=queue,
        incarnation=reply.incarnation,
        epoch=reply.epoch,
        last_tag=reply.end_tag,
        query_id="the-query",
        run_id="the-run",
        batch_id=4,
    )
    assert sum(each.num_rows for each in session.fetch(fetched, ["body"])) == 3
    sentence = findings(run, queue)["lease-live"]["sentence"]
    assert "for batch 4 of query the-query. Its rows were read." in sentence
    stream.close()
    eventually("the reader's absence", lambda: not admin.session(queue).live, within_s=ABSENCE_S)
    gone = findings(run, queue)["lease-without-holder"]
    told = "for ever" in gone["sentence"], gone["remedy"].endswith(f"ackq session release {queue}")
    assert told == (True, True)
    timed = sessions_pb2.AdvanceRequest()
    timed.CopyFrom(request)
    timed.session_timeout_ms = 3_600_000
    session.advance(timed)
    session.hold(queue, reply.incarnation, reply.epoch, request.holder.token).close()
    eventually("the reader's absence", lambda: not admin.session(queue).live, within_s=ABSENCE_S)
    sentence = findings(run, queue)["lease-times-out"]["sentence"]
    assert re.search(r"1\.0 h: in (60\.0|59\.\d) min the messages are", sentence), sentence


def test_what_a_user_may_not_see(tmp_path, monkeypatch):
    """Q9, A2: a user without a role gets the findings that it may see; what it may not is named."""
    with with_master(tmp_path) as guarded:
        guarded.add("app", read="q")
        monkeypatch.setenv("ACKQ_TOKEN", guarded.tokens["app"])
        with guarded.client("master") as master:
            master.declare("dead")
            master.declare("other")
            master.declare(dead_letter_queue="dead")
            master.publish(b"a", b"b")
            master.stage([b"c"], stage_id=b"s" * 16, seal=(1, 2))
            master.open(raw_holder(), session="both", queues=["q", "other"], max_messages=1)
        found = findings(ackq_on(guarded.broker.endpoint), "q")
    assert found.keys() == {
        *("nothing-stuck", "readers-not-shown", "lease-not-shown"),
        *("batches-not-shown", "dead-letter-queue-not-shown"),
    }
    assert "'both' has leased 1 message" in found["lease-not-shown"]["sentence"]


def test_a_restored_journal(broker, tmp_path):
    """Q9, Q8: a restored journal refuses older sessions until `accept-history`, which is named."""
    run = ackq_on(broker.endpoint)
    run("queue", "declare", "q")
    run("publish", "q", "x")
    lease(broker.endpoint, "q")
    broker.stop()
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy)
    shutil.rmtree(broker.data_dir)
    shutil.copytree(copy, broker.data_dir)
    broker.restart()
    found = findings(run, "q")
    assert found["history-not-accepted"]["remedy"].endswith("ackq broker accept-history")
    assert "lease-of-older-history" in found
    run("broker", "accept-history")
    assert {"history-not-accepted", "lease-of-older-history"} & set(findings(run, "q")) == set()
