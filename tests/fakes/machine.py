"""The environment of a broker process with a faulty machine or other limits.

Invariant: this process, and all others, keep the real machine and limits.
"""

import json
import os
import sys
from pathlib import Path

_FAULTY = Path(__file__).with_name("faulty")


def with_faults(folder):
    """Lets a process find its faults in files of a folder; see `sitecustomize` in `faulty`."""
    path = os.pathsep.join([str(_FAULTY), *(entry for entry in sys.path if entry)])
    return {"PYTHONPATH": path, "ACKQ_TEST_FAULTS": str(folder)}


def with_limits(folder, values):
    """Lets a process begin with other values of `ackq.limits`, by name; `folder` may be new."""
    Path(folder).mkdir(exist_ok=True)
    Path(folder, "limits").write_text(json.dumps(values))
    return with_faults(folder)


def with_slow_disk(folder, bytes_per_s):
    """Slows the journal's syncs to a disk of that rate; `folder` is empty."""
    Path(folder, "slow-disk").write_text(str(bytes_per_s))
    return with_faults(folder)


def with_change(folder, program):
    """Lets a process run a program at its start that changes the product; `folder` is its own."""
    Path(folder).mkdir(exist_ok=True)
    Path(folder, "change.py").write_text(program)
    return with_faults(folder)
