"""The pace of a long command, and its progress bar on a terminal."""

import io

import pytest

from ackq.cli import progress


def test_a_late_sleep_is_caught_up():
    """The rate holds although each sleep ends late."""
    slept = []
    clock = {"now_s": lambda: sum(slept), "sleep": lambda wait_s: slept.append(wait_s + 0.01)}
    assert len(list(progress.paced(range(1001), 100, **clock))) == 1001
    assert sum(slept) == pytest.approx(10.0, abs=0.05)


def test_a_bar_says_what_is_confirmed(monkeypatch):
    """The bar on stderr shows the confirmed messages, and is removed at the end."""
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_EVERY_S", 1e-9)
    with progress.bar(100, lambda: 1234) as read:
        read(50)
        read(50)
    assert "1,234 confirmed" in shown.getvalue()
