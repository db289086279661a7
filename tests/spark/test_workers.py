"""Spark's Python workers, started through the wrapper `worker_python`."""

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


def test_workers_import_the_installed_pyspark(spark):
    """`configure` spares local workers the zip that each of them would compile anew."""
    import pyspark

    found = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert found == [pyspark.__file__]
