"""The pace of a long command, and its progress bar on a terminal."""

import io

import pytest

from ackq.cli import progress


class Clock:
    """A clock that moves by its sleeps, and by `each_s` for each item."""

    def __init__(self, each_s=0.0, late_s=0.0):
        self.at_s, self._each_s, self._late_s = 0.0, each_s, late_s

    def now_s(self):
        return self.at_s

    def sleep(self, wait_s):
        self.at_s += wait_s + self._late_s

    def times(self, count, per_second):
        found = []
        for _ in progress.paced(range(count), per_second, now_s=self.now_s, sleep=self.sleep):
            found.append(round(self.at_s, 6))
            self.at_s += self._each_s
        return found


def test_a_late_sleep_is_caught_up():
    """The rate holds although each sleep ends late."""
    assert Clock(late_s=0.01).times(1001, 100)[-1] == pytest.approx(10.0, abs=0.05)


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
