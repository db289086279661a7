"""O4: errors of the operating system as messages."""

import errno
import os

import pytest

from ackq.errors import NotFoundError
from ackq_broker.cli.explanations import explain


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EEXIST]
)
def test_an_error_names_its_file_and_a_remedy(number):
    """O4: the message names file and remedy, without the error number."""
    told = explain(OSError(number, os.strerror(number), "/d/LOCK"))
    assert "/d/LOCK" in told
    assert ": " in told
    assert os.strerror(number) not in told
    assert "Errno" not in told


def test_what_is_not_known_is_told_as_the_system_says_it():
    """O4: the system's text, with the file or the data directory."""
    assert explain(OSError(errno.ELOOP, "Too many links", "/d")) == "/d: Too many links"
    assert explain(OSError("no number")) == "the data directory: no number"
    assert explain(NotFoundError("there is none")) == "there is none"
