"""Arrays made directly of buffers, without the modules that pyarrow imports for lists."""

from tests.unit.client.threads import run_program


def test_a_batch_is_settled_without_pandas():
    """A process that settles batches does not import pandas, which takes 0.3 s of CPU."""
    done = run_program("""
        import sys, pyarrow
        from ackq.client.consuming.message import tag_runs
        from ackq.client.blocks.small_arrays import integers
        tags = integers([3, 4, 5], pyarrow.int64())
        runs = tag_runs(pyarrow.RecordBatch.from_arrays([tags], ["delivery_tag"]))
        print([tuple(run) for run in runs], "pandas" in sys.modules)
    """)
    assert done.stdout == "[(3, 5)] False\n"
