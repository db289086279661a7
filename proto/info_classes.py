"""Writes connector/ackq/v1/info.py: the classes of `ackq.info`, from the protocol and its comments.

python proto/info_classes.py > connector/ackq/v1/info.py
"""

import re
import textwrap
from pathlib import Path

PROTO = Path(__file__).parent / "ackq/v1"
# A class that others are fields of stands before them; the message, where it has another name.
CLASSES = {
    "ServerInfo": "ServerInfoResponse",
    "AcceptedHistory": "AcceptHistoryResponse",
    "Backup": "BackupResponse",
    "Drain": "DrainResponse",
    "QueueProperties": "",
    "QueueInfo": "",
    "DeclaredQueue": "DeclareQueueResponse",
    "DeletedQueue": "DeleteQueueResponse",
    "Redriven": "RedriveResponse",
    "Holding": "",
    "ConsumerInfo": "",
    "Holdings": "ListHoldingsResponse",
    "Binding": "",
    "ExchangeInfo": "",
    "DeclaredExchange": "DeclareExchangeResponse",
    "BrowseChunk": "",
    "Holder": "",
    "SessionInfo": "",
    "ReleasedSession": "ReleaseSessionResponse",
    "LeaseChunk": "",
    "RetainedBatch": "",
    "RetainedBatches": "PlanRetainedResponse",
    "SettledSession": "SettleSessionResponse",
    "RewoundSession": "RewindSessionResponse",
    "LinkReport": "",
    "LinkInfo": "",
    "OutboundReport": "",
    "RemovedLink": "RemoveLinkResponse",
    "BatchTarget": "",
    "StageInfo": "",
    "BatchInfo": "",
    "DroppedBatch": "DropBatchResponse",
    "WriterInfo": "",
}
# A secret, and what the client sees to by itself.
NOT_TOLD = {("Holder", "token"), ("Redriven", "more")}
ENUMS = {
    "Overflow": ("OverflowName", '"reject-publish"'),
    "ExchangeType": ("ExchangeKind", '"topic"'),
    "LinkAck": ("LinkAckName", '"settled"'),
    "Alarm": ("AlarmName", '"unspecified"'),
}
PLAIN = {"string": ("str", '""'), "bool": ("bool", "False"), "bytes": ("bytes", 'b""')}
NUMBERS = ("uint32", "uint64", "int32", "int64")
HEAD = '''"""Generated from proto/ackq/v1 by proto/info_classes.py: do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OverflowName = Literal["reject-publish", "drop-head"]
ExchangeKind = Literal["direct", "fanout", "topic"]
LinkAckName = Literal["settled", "stored"]
AlarmName = Literal["unspecified", "draining", "disk", "memory"]
'''
MESSAGE = re.compile(r"((?:^//[^\n]*\n)*)^message (\w+) \{\n((?:[^}\n][^\n]*\n)*)^\}", re.MULTILINE)
FIELD = re.compile(r"(repeated |optional )?(map<[^>]+>|[\w.]+) (\w+) = \d+")


def messages():
    """(comment, fields) of each message: a field is its label, type, name and comment."""
    found = {}
    for path in sorted(PROTO.glob("*.proto")):
        for comment, name, body in MESSAGE.findall(path.read_text(encoding="utf-8")):
            fields, said = [], []
            for line in map(str.strip, body.splitlines()):
                if line.startswith("//"):
                    said.append(line[2:].strip())
                elif declared := FIELD.match(line):
                    fields.append((*declared.groups(""), " ".join(said)))
                    said = []
            found[name] = re.sub(r"\n?// ?", " ", comment).strip(), fields
    return found


def annotation(label, kind):
    """The type of an attribute, and its default."""
    if kind.startswith("map"):
        return "Mapping[str, int]", "field(default_factory=dict)"
    if kind in NUMBERS:
        made = "int", "0"
    elif kind in PLAIN:
        made = PLAIN[kind]
    elif kind in ENUMS:
        made = ENUMS[kind]
    else:
        made = kind, f"field(default_factory={kind})"
    if label == "repeated ":
        return f"tuple[{made[0]}, ...]", "()"
    return (f"{made[0]} | None", "None") if label else made


def wrapped(text, indent, hanging):
    """A paragraph of a docstring."""
    return textwrap.fill(
        text,
        100,
        initial_indent=" " * indent,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def written(name, comment, fields):
    """One class."""
    first, _, more = comment.partition(". ")
    lines = [
        "",
        "",
        "@dataclass(frozen=True, slots=True, kw_only=True)",
        f"class {name}:",
        f'    """{first.rstrip(".")}.',
        "",
        *([wrapped(more, 4, 4), ""] if more else []),
        "    Attributes:",
        *(wrapped(f"{attribute}: {said}", 8, 12) for _, _, attribute, said in fields),
        '    """',
        "",
    ]
    for label, kind, attribute, _ in fields:
        hint, default = annotation(label, kind)
        lines.append(f"    {attribute}: {hint} = {default}")
    return lines


def main():
    """Prints the module."""
    known, names = messages(), [*(name for name, _ in ENUMS.values()), *CLASSES]
    lines = ["", "__all__ = [", *(f'    "{name}",' for name in sorted(names)), "]"]
    for name, message in CLASSES.items():
        comment, fields = known[message or name]
        lines += written(name, comment, [f for f in fields if (name, f[2]) not in NOT_TOLD])
    print(HEAD + "\n".join(lines))


if __name__ == "__main__":
    main()
