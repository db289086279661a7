"""Secret files that every user can read are warned of, with mode and remedy."""

import logging

import pytest

from ackq.secret_files import warn_if_public


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o444])
def test_who_can_be_read_by_all_is_named_once(tmp_path, caplog, mode):
    """One warning per file, with a command quoted for the shell."""
    path = tmp_path / "a key"
    path.write_text("secret")
    path.chmod(mode)
    for _ in range(2):
        warn_if_public(path)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == (
        f"The file '{path}' holds a secret, and every user of this machine can read it"
        f" (mode {mode:04o}): chmod 600 '{path}'"
    )


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660, 0o400, 0o602])
def test_the_owner_and_its_group_may_read(tmp_path, caplog, mode):
    """A group may read a secret file, as services get secrets by group."""
    path = tmp_path / "key"
    path.touch()
    path.chmod(mode)
    warn_if_public(str(path))
    assert caplog.records == []


def test_a_file_that_is_gone_is_for_its_reader(tmp_path):
    """A missing file raises, and its reader reports it with the option."""
    with pytest.raises(FileNotFoundError):
        warn_if_public(tmp_path / "gone")
