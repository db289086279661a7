"""The memory of a machine and its cgroups."""

import mmap

import pytest

from ackq_broker.engine import process_memory


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "1000"}, 1000),
        ("0::/a", {"a/memory.max": "3000", "memory.max": "2000"}, 2000),
        ("0::/", {}, None),
        ("0::/", {"memory.max": "max"}, None),
        ("4:memory:/x\n0::/", {"memory/x/memory.limit_in_bytes": "500"}, 500),
        ("4:cpu,memory:/x\n3:pids:/y", {"memory/memory.limit_in_bytes": "600"}, 600),
    ],
)
def test_the_least_of_machine_and_cgroups(tmp_path, lines, files, expected):
    """P14: a limit above this cgroup counts; no limit and no cgroup leave the machine's memory."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(lines + "\n")
    for name, text in files.items():
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(text + "\n")
    found = process_memory.machine_bytes(proc, cgroups)
    assert found == (expected or process_memory.machine_bytes(tmp_path, tmp_path))
    assert found > 0


def test_a_process_uses_memory():
    """P14: the used memory grows with written pages, and shrinks when they are freed."""
    process_memory.trim()
    before = process_memory.used_bytes()
    with mmap.mmap(-1, 64 << 20) as large:
        large.write(b"x" * len(large))
        assert process_memory.used_bytes() - before > 50 << 20
    process_memory.trim()
    assert process_memory.used_bytes() - before < 30 << 20
