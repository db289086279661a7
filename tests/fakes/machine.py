"""The environment of a broker process whose machine, or whose limits, are not as usual.

Invariant: what is usual stays so in this process, and in any other.
"""

import json
import os
import sys
from pathlib import Path

_FAULTY = Path(__file__).with_name("faulty")


def with_faults(folder):
    """Has the process find its faults in files of a folder; `sitecustomize` there says which."""
    path = os.pathsep.join([str(_FAULTY), *(entry for entry in sys.path if entry)])
    return {"PYTHONPATH": path, "ACKQ_TEST_FAULTS": str(folder)}


def with_limits(folder, values):
    """Has the process begin with other values of `ackq.limits`, by name; `folder` is empty."""
    Path(folder, "limits").write_text(json.dumps(values))
    return with_faults(folder)


def with_slow_disk(folder, bytes_per_s):
    """Has the journal's syncs take as long as on a disk of that rate; `folder` is empty."""
    Path(folder, "slow-disk").write_text(str(bytes_per_s))
    return with_faults(folder)


def with_change(folder, program):
    """Has the process run a program at its start that changes the product; `folder` is its own."""
    Path(folder, "change.py").write_text(program)
    return with_faults(folder)
