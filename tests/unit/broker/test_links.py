"""Data directories that do not outlive the driver, judged by the mount table."""

import tempfile
from pathlib import Path

import pytest

from ackq_broker import links

MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
22 21 0:5 / /mem rw - tmpfs none rw
23 21 8:2 / /mem/kept rw - xfs /dev/sdb rw
24 21 8:3 / /with\040space rw - tmpfs none rw
25 21 0:9 / /covered rw - ext4 /dev/sdc rw
26 21 0:9 / /covered rw - overlay overlay rw
no mount - at all
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/ackq", "ext4"),
        ("/mem/edge", "tmpfs"),
        ("/mem/kept/edge", "xfs"),
        ("/memory", "ext4"),
        ("/with space/edge", "tmpfs"),
        ("/covered/edge", "overlay"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path, kind):
    """L9: a directory's file system shows if its data is only in memory."""
    assert links._file_system(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("folder", [*links._CLEARED, tempfile.gettempdir()])
def test_folders_for_temporary_files_are_refused(folder):
    """L9: a data directory under a temporary folder is refused before it exists."""
    assert folder in links.why_temporary(Path(folder, "not", "there"))


def test_memory_is_refused(monkeypatch):
    """L9: a data directory in memory or in a container's layer is refused."""
    monkeypatch.setattr(links, "_mounts", lambda: MOUNTS)
    assert "in memory" in links.why_temporary(Path("/mem/edge"))
    assert "container" in links.why_temporary(Path("/covered/edge"))
    assert links.why_temporary(Path("/srv/edge")) == ""
