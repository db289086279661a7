"""Tables, and protobuf messages as plain values."""

from ackq.cli.output import as_dict, preview, print_table
from ackq.v1 import admin_pb2, publishing_pb2, sessions_pb2


def test_a_message_is_plain_values():
    """Every field by its name; enums by their short name, bytes in hex, no secrets."""
    queue = admin_pb2.QueueInfo(
        queue="q",
        properties=admin_pb2.QueueProperties(overflow=admin_pb2.OVERFLOW_DROP_HEAD),
        sessions=["s"],
    )
    plain = as_dict(queue)
    assert list(plain) == [field.name for field in queue.DESCRIPTOR.fields]
    assert (plain["queue"], plain["sessions"], plain["ready"]) == ("q", ["s"], 0)
    assert plain["properties"]["overflow"] == "drop-head"
    details = [publishing_pb2.StageInfo(stage_id=b"\x01\xff")]
    batch = as_dict(publishing_pb2.BatchInfo(details=details))
    assert batch["details"][0]["stage_id"] == "01ff"
    assert "token" not in as_dict(sessions_pb2.Holder(token=b"secret"))


def test_a_table_is_aligned_by_what_a_terminal_shows(capsys):
    """Numbers right, texts left, wide characters count twice, and no line ends in spaces."""
    print_table(("NAME", "COUNT", "NOTE"), [("日本", 7, "x"), ("e\u0301a", 1000, "")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME  COUNT  NOTE",
        "日本      7  x",
        "e\u0301a     1000",
    ]


def test_an_empty_table_has_its_header(capsys):
    """Scripts and people see that there is nothing."""
    print_table(("A", "B"), [])
    assert capsys.readouterr().out == "A  B\n"


def test_the_start_of_a_body_says_how_long_the_whole_is():
    """Q5: of a body that was cut by the broker."""
    assert preview(b"a" * 80, 1000) == "a" * 80 + "… (1000 bytes)"
    assert preview(b"a" * 80, 80) == "a" * 80
