"""Memory of this process: the bytes in use, and the limit of the machine or its cgroup."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def used_bytes() -> int:
    """The resident memory of this process; 0 where the system does not report it."""
    try:
        return int((_PROC / "self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def machine_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """The memory of the machine, or of this process's cgroup if that has less."""
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return min((machine, *_cgroup_limits(proc, cgroups)))


def trim() -> None:
    """Returns freed memory to the system, which the allocators keep otherwise; may take a while."""
    pa.default_memory_pool().release_unused()
    trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim_heap is not None:
        trim_heap(0)


def _cgroup_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """The limits of this process's cgroup and those above it."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, file = (
            (cgroups / "memory", "memory.limit_in_bytes")
            if controllers
            else (cgroups, "memory.max")
        )
        folder = root / path.lstrip("/")
        for each in (folder, *folder.parents):
            if each.is_relative_to(root):
                yield from _limit(each / file)


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return
    if text.isdecimal():
        yield int(text)
