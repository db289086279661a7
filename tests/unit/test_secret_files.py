"""Secret files that every user can read are warned of, with mode and remedy."""

import logging

import pytest

from ackq.secret_files import warn_if_public


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o444])
def test_who_can_be_read_by_all_is_named_once(tmp_path, caplog, mode):
    """One warning per file, with a command quoted for the shell; a group may read a secret."""
    path = tmp_path / "a key"
    path.write_text("secret")
    for private in (0o600, 0o640, 0o660, 0o400, 0o602):
        path.chmod(private)
        warn_if_public(str(path))
    assert caplog.records == []
    path.chmod(mode)
    for _ in range(2):
        warn_if_public(path)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == (
        f"The file '{path}' holds a secret, and every user of this machine can read it"
        f" (mode {mode:04o}): chmod 600 '{path}'"
    )
