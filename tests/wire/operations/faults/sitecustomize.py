"""Makes a broker process fail once a file exists; Python runs this at its start.

It is found on PYTHONPATH. `ACKQ_FAIL_AT` names the function that fails, as
`module:Class.function`, and `ACKQ_FAIL_FILE` the file.
"""

import importlib
import os
from pathlib import Path

_path, _names = os.environ["ACKQ_FAIL_AT"].split(":")
_file = Path(os.environ["ACKQ_FAIL_FILE"])
_owner_name, _name = _names.split(".")
_owner = getattr(importlib.import_module(_path), _owner_name)
_function = getattr(_owner, _name)


def _failing(*args, **kwargs):
    if _file.exists():
        raise MemoryError("injected")
    return _function(*args, **kwargs)


setattr(_owner, _name, _failing)
