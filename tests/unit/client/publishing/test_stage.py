"""Stages of a writer batch against a scripted broker: rule K3."""

import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from ackq import errors, limits
from ackq.client import StageWriter
from ackq.v1 import publishing_pb2
from ackq.wire import block
from tests.eventually import SOON_S
from tests.fakes import scripted_broker as fake


def writer(broker, **options):
    return StageWriter(broker.endpoint, writer="query", batch_id=7, run_id="run", **options)


def rows(*bodies, **more):
    return pa.RecordBatch.from_pydict({"body": list(bodies), **more})


def data_frames(broker):
    return [each for each in broker.publishing.stages[0] if each.header.HasField("data")]


def test_sealed_stage_counts_what_was_written(broker):
    """K3, P7: a stage has row and byte counts; its frames name the queue of unroutable rows.

    Rows keep the order in which they were written; a frame has one exchange and key.
    """
    with writer(broker, label="0.0", unroutable_queue="lost") as out:
        out.write(rows(b"1"), routing_key="a")
        out.write(rows(b"22"), routing_key="a")
        out.write(rows(b"3"), routing_key="b")
        out.write(rows(b"4"), exchange="x", routing_key="b")
        out.write(rows(b"5", routing_key=["k"]), exchange="x")
        stage = out.seal()
    assert stage[1:] == (5, 6 + 5)
    assert pickle.loads(pickle.dumps(stage)) == stage  # noqa: S301 - our own bytes
    first, *_, seal = broker.publishing.stages[0]
    names = {"writer": "query", "batch_id": 7, "run_id": "run", "label": "0.0"}
    opening = publishing_pb2.StageOpen(stage_id=stage.stage_id, mandatory=True, **names)
    assert first.header.open == opening
    assert (seal.header.seal.rows, seal.header.seal.payload_bytes) == (5, stage.payload_bytes)
    found = [(each.header.data, each.block) for each in data_frames(broker)]
    assert {data.unroutable_queue for data, _ in found} == {"lost"}
    decoded = [(data.exchange, *block.decode(held, validate=True)) for data, held in found]
    assert [(x, h.routing_key, *held["body"].to_pylist()) for x, h, held in decoded] == [
        ("", "a", b"1", b"22"),
        ("", "b", b"3"),
        ("x", "b", b"4"),
        ("x", "", b"5"),
    ]


def test_small_batches_share_frames(broker):
    """Batches of a few hundred rows, as Spark makes them, share frames of up to 10,000 rows."""
    with writer(broker) as out:
        out.write(rows())
        for at in range(30):
            out.write(rows(*[b"%d" % at] * 1000), routing_key="q")
        assert out.seal().rows == 30_000
    assert [each.header.data.rows for each in data_frames(broker)] == [10_000] * 3
    with writer(broker) as empty:
        assert empty.seal()[1:] == (0, 0)


def test_window_bounds_what_is_on_its_way(broker, monkeypatch):
    """K4: with a full window the writer waits for `stored`."""
    monkeypatch.setattr(limits, "STAGE_WINDOW_BYTES", 3_000_000)
    release = threading.Event()

    def script(requests):
        for answers, answer in enumerate(fake.store_all(requests)):
            if answers == 1:
                release.wait(SOON_S)
            yield answer

    def write():
        for _ in range(10):
            out.write(rows(bytes(1_000_000)), routing_key="q")

    broker.publishing.stage_script = script
    with writer(broker) as out, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        with pytest.raises(TimeoutError):
            writing.result(0.2)
        assert out._rows <= 4
        release.set()
        writing.result(SOON_S)
        assert out.seal().rows == 10


@pytest.mark.parametrize(
    ("failure", "error", "words"),
    [
        (errors.UnroutableError("No queue wants it."), errors.UnroutableError, "No queue"),
        (fake.Cut, errors.BrokerUnavailableError, "cut"),
    ],
)
def test_failure_reaches_the_writer(broker, failure, error, words):
    """K4: an unroutable row, or a cut, fails the task with its reason; no stage is resumed."""
    opened = publishing_pb2.StageResponse()
    broker.publishing.stage_script = fake.answering(opening=opened, end=failure)
    out = writer(broker)
    out.write(rows(b"a"), routing_key="nowhere")
    with pytest.raises(error, match=words):
        out.seal()
    with pytest.raises(errors.ClosedError, match="sealed or aborted"):
        out.write(rows(b"b"))


@pytest.mark.parametrize("dropped", [False, True])
def test_abandoned_writer_ends_its_upload(broker, dropped):
    """K3: leaving the block without a seal, or forgetting the writer, aborts the stage."""
    out = writer(broker)
    out.write(rows(b"a"), routing_key="q")
    assert broker.publishing.stage_opened.wait(SOON_S)
    if not dropped:
        with out:
            pass
    del out
    gc.collect()
    assert broker.publishing.stage_ended.wait(SOON_S)
    seals = [each for each in broker.publishing.stages[0] if each.header.HasField("seal")]
    assert seals == []
