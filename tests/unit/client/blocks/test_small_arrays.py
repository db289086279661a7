"""Arrays made directly of buffers equal the arrays that pyarrow makes of the values."""

import subprocess
import sys

import pyarrow as pa
import pytest

from ackq.client.blocks.small_arrays import empty_maps, flag, integers, texts
from ackq.wire import columns


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), columns.TIMESTAMP])
@pytest.mark.parametrize("values", [[], [0], [-1, 7, (1 << 31) - 1]])
def test_integers(values, kind):
    made = integers(values, kind)
    made.validate(full=True)
    assert made == pa.array(values, pa.int64()).cast(kind)


@pytest.mark.parametrize("values", [[], [""], ["a", "", "größer"]])
def test_texts(values):
    made = texts(values)
    made.validate(full=True)
    assert made == pa.array(values, pa.string())


@pytest.mark.parametrize("value", [True, False])
def test_flag(value):
    assert flag(value=value) == pa.scalar(value)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_empty_maps(rows):
    made = empty_maps(rows)
    made.validate(full=True)
    assert made == pa.array([[]] * rows, columns.HEADERS)


def test_a_batch_is_settled_without_pandas():
    """A process that settles batches does not import pandas, which takes 0.3 s of CPU."""
    code = (
        "import sys, pyarrow; from ackq.client.consuming.message import tag_runs;"
        "from ackq.client.blocks.small_arrays import integers;"
        "tags = integers([3, 4, 5], pyarrow.int64());"
        "runs = tag_runs(pyarrow.RecordBatch.from_arrays([tags], ['delivery_tag']));"
        "print([tuple(run) for run in runs], 'pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "[(3, 5)] False\n"
