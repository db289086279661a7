"""Spark's Python workers, started through the wrapper `worker_python`."""

import os
import socket
import subprocess
import sys

from ackq.spark.configuration import _WORKER


def test_wrapper_drops_only_sparks_zips():
    """The wrapper runs the interpreter without Spark's zips on its path, and with all arguments."""
    kept = ["/a b", "/x/*.zip", "/job.zip"]
    path = ":".join(["/s/python/lib/pyspark.zip", *kept, "/s/python/lib/py4j-0.10.9.9-src.zip"])
    program = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sep='|')"
    done = subprocess.run(
        [str(_WORKER), "-c", program, "one two", "*"],
        env={"PYTHONPATH": path, "ACKQ_WORKER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{':'.join(kept)}|['one two', '*']"


def test_the_reader_process_connects_before_it_imports_pyspark(tmp_path):
    """Spark ends a query whose reader process needs more than 10 s to connect."""
    (tmp_path / "pyspark.py").write_text("raise SystemExit('pyspark was imported')")
    with socket.create_server(("127.0.0.1", 0)) as jvm:
        reader = subprocess.Popen(
            [str(_WORKER), "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            env={
                "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
                "ACKQ_WORKER_PYTHON": sys.executable,
                "PYTHON_WORKER_FACTORY_PORT": str(jvm.getsockname()[1]),
                "PYTHON_WORKER_FACTORY_SECRET": "secret",
            },
            stderr=subprocess.PIPE,
        )
        jvm.settimeout(60)
        connection, _ = jvm.accept()
        with connection:
            assert connection.recv(10, socket.MSG_WAITALL) == b"\0\0\0\6secret"
            assert reader.poll() is None, "it waits for the answer"
            connection.sendall(b"\0\0\0\2ok")
            assert connection.recv(4, socket.MSG_WAITALL) == reader.pid.to_bytes(4, "big")
            _, err = reader.communicate(timeout=60)
    assert err.strip() == b"pyspark was imported"


READS = """
import sys
import pyarrow as pa
from ackq.client.blocks import decoding
from ackq.client.sessions import session
from ackq.spark.source import reader
from ackq.v1.messages_pb2 import DeliveryRuns
from ackq.wire import block, columns

body = pa.nulls(2, pa.binary())
data = block.encode(pa.RecordBatch.from_arrays([body], names=["body"]), published_at_us=5)
runs = DeliveryRuns(first_tag=[1], rows=[2], delivery_count=[1], queue_index=[0], queues=["q"])
rows = decoding.delivered(runs, data, tuple(columns.DELIVERED))
sys.exit("pandas" in sys.modules)
"""


def test_a_reader_imports_no_pandas():
    """Pandas would take 0.2 s of CPU in each process of a query, which does not need it."""
    assert subprocess.run([sys.executable, "-c", READS], check=False).returncode == 0


def test_workers_import_the_installed_pyspark(spark):
    """`configure` spares local workers the zip that each of them would compile again."""
    import pyspark

    found = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert found == [pyspark.__file__]
