"""Arrays made directly of buffers equal the arrays that pyarrow makes of the values."""

import pyarrow as pa
import pytest

from ackq.client.blocks.small_arrays import empty_maps, flag, integers, texts
from ackq.wire import columns
from tests.unit.client.threads import run_program

KINDS = (pa.int32(), pa.int64(), columns.TIMESTAMP)
NUMBERS = ([], [0], [-1, 7, (1 << 31) - 1])
TEXTS = ([], [""], ["a", "", "größer"])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        *(
            (integers(n, kind), pa.array(n, pa.int64()).cast(kind))
            for n in NUMBERS
            for kind in KINDS
        ),
        *((texts(values), pa.array(values, pa.string())) for values in TEXTS),
        *((empty_maps(rows), pa.array([[]] * rows, columns.HEADERS)) for rows in (0, 1, 3)),
        *((flag(value=value), pa.scalar(value)) for value in (True, False)),
    ],
)
def test_arrays_are_those_of_pyarrow(made, expected):
    made.validate(full=True)
    assert made == expected


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
