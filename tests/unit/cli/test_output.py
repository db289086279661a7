"""Tables, and answers of `Admin` as plain values."""

import sys

import pytest

from ackq.cli.output import as_dict, preview, print_table
from ackq.info import BatchInfo, QueueInfo, QueueProperties, SessionInfo, StageInfo
from ackq.v1 import admin_pb2


def test_an_answer_is_plain_values():
    """Each field by its name, in the protocol's order; bytes are in hex."""
    queue = QueueInfo(queue="q", properties=QueueProperties(overflow="drop-head"), sessions=("s",))
    plain = as_dict(queue)
    assert list(plain) == [field.name for field in admin_pb2.QueueInfo.DESCRIPTOR.fields]
    assert (plain["queue"], plain["sessions"], plain["ready"]) == ("q", ["s"], 0)
    assert plain["properties"]["overflow"] == "drop-head"
    details = (StageInfo(stage_id=b"\x01\xff"),)
    batch = as_dict(BatchInfo(details=details))
    assert batch["details"][0]["stage_id"] == "01ff"
    assert as_dict(SessionInfo(holes_by_reason={"taken": 2, "expired": 1}))["holes_by_reason"] == {
        "expired": 1,
        "taken": 2,
    }


def test_a_table_is_aligned_by_what_a_terminal_shows(capsys):
    """Numbers right, texts left; wide characters count twice; no trailing spaces."""
    print_table(("NAME", "COUNT", "NOTE"), [("日本", 7, "x"), ("e\u0301a", 1000, "")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME  COUNT  NOTE",
        "日本      7  x",
        "e\u0301a     1000",
    ]


LONG = "q" * 100 + "-" + "z" * 149


@pytest.mark.parametrize(("columns", "shown"), [("100", 36), ("40", 16)])
def test_a_terminal_gets_a_table_of_its_width(capsys, monkeypatch, columns, shown):
    """M4: long texts are elided in the middle, numbers never; at least 16 columns stay."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    rows = [(LONG, 123_456_789_012_345_678, LONG, "a"), ("short", 1, "b", "c")]
    print_table(("QUEUE", "READY", "SESSIONS", "DEAD"), rows)
    printed = capsys.readouterr().out
    head, long, short = printed.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    name, ready, sessions, dead = long.split()
    assert (len(name), ready, name, dead) == (shown, "123456789012345678", sessions, "a")
    assert name.startswith("q" * (shown // 2))
    assert name.endswith("…" + "z" * (shown - shown // 2 - 1))
    assert len(long) <= max(int(columns), 16 + 2 + 18 + 2 + 16 + 2 + 4)
    assert long.rindex("a") == short.rindex("c") == head.index("DEAD")


def test_the_start_of_a_body_says_how_long_the_whole_is():
    """Q5: the preview of a body cut by the broker shows the full length."""
    assert preview(b"a" * 80, 1000) == "a" * 80 + "… (1000 bytes)"
    assert preview(b"a" * 80, 80) == "a" * 80
