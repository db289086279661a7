"""Replaces a library's functions for one module of the product.

Invariant: other modules and threads of the process keep the library as it is. One of them, as the
thread by which PySpark frees Java objects, would else call the test's function at any time.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest


def replace(
    patch: pytest.MonkeyPatch, module: ModuleType, library: ModuleType, **functions: object
) -> None:
    """Replaces functions of a library that a module imports under the library's own name."""
    found = SimpleNamespace(**{**vars(library), **functions})
    patch.setattr(module, library.__name__.rpartition(".")[2], found)
