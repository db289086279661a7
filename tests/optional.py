"""Optional libraries: tests that need a missing one are skipped; the gate needs all of `all`."""

import importlib.util
import os

import pytest

# Not in the extra `all`, so that the gate's first command runs without it.
COMPILED = "proton"


def needs(module, extra):
    """Skips the calling test module if a library is missing."""
    if is_missing(module) and (module == COMPILED or os.environ.get("CI") != "true"):
        pytest.skip(f"not installed: pip install 'ackq[{extra}]'", allow_module_level=True)


def is_missing(module):
    """Whether a library is not installed."""
    return importlib.util.find_spec(module) is None
