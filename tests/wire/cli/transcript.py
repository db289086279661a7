"""Transcripts of the command line: commands, what each printed, and its exit status.

A transcript is a text that a person reads. Its lines, by how they begin:

- `$ ackq queue list` is a command, with a Python string after `<<<` if it reads one from stdin, or
  the file after `>` to which it writes. `%` is a step that no command makes, of `steps.py`.
- `  | ` begins a line of stdout, `  ! ` one of stderr, and `  [3]` is an exit status other than 0.
- All other lines are comments, and stay.

What differs from run to run stands as `<time>`, `<age>`, `<endpoint>`, and so on. An id is
`<id 1>`, the next one `<id 2>`: the same id has the same number in the whole transcript, and a
command may name it. JSON of more than a line's length is indented.
"""

import json
import os
import re
import shlex
import socket
from ast import literal_eval
from pathlib import Path

from click.testing import CliRunner

from ackq import __version__
from ackq.cli.commands import ackq

# Columns of a table with an age.
_AGE_TITLES = re.compile(r"\b(LEASE AGE|AGE|OLDEST|AGO|IDLE)( +|$)")
# What differs from run to run, or between versions of gRPC, and its placeholder. An age is "-" in
# the first millisecond. An id is replaced apart from these, by its number.
_PLACEHOLDERS = (
    (re.escape(__version__), "<version>"),
    (re.escape(socket.gethostname()), "<host>"),
    (rf"(\(|pid\"?:? +|pid |<host>:){os.getpid()}\b", r"\1<pid>"),
    (r"\b20[2-9]\d-\d\d-\d\d[T ]\d\d:\d\d:[\d.]+(Z|\+00:00| UTC)", "<time>"),
    (r"(_us\"?:? +)[1-9]\d+", r"\1<time>"),
    (r"\b\d+(\.\d)? (ms|s|min)\b(?! at (least|most))", "<age>"),
    (r"(?<=message is )-(?= old)|(?<= for )-(?=[ :.,;])", "<age>"),
    (r"((age|away)_ms\"?:? +)\d+", r"\1<age>"),
    (r"(?<=they keep )\d+ bytes", "<bytes>"),
    (r"failed to connect to all addresses[^\"]* refused", "<error>"),
)
_WIDTH = 100


class Player:
    """Runs a transcript's commands against a broker; remembers the ids that it saw.

    Args:
        endpoint: The broker's address.
        steps: The functions for lines that begin with `%`, by name.
    """

    def __init__(self, endpoint, steps):
        self._endpoint = endpoint
        self._steps = steps
        self._ids = {}

    def play(self, transcript):
        """The transcript with what its commands print now."""
        lines = []
        for line in transcript.splitlines():
            if line.startswith("$ ackq "):
                lines += [line, *self._command(line.removeprefix("$ ackq "))]
            elif line.startswith("% "):
                name, *arguments = shlex.split(line.removeprefix("% "))
                self._steps[name](*arguments)
                lines.append(line)
            elif not line.startswith(("  |", "  !", "  [")):
                lines.append(line)
        return "\n".join(lines) + "\n"

    def _command(self, line):
        words, _, typed = line.partition(" <<< ")
        words, _, file = words.partition(" > ")
        for value, name in self._ids.items():
            words = words.replace(name, value)
        arguments = ["--endpoint", self._endpoint, *shlex.split(words)]
        done = CliRunner().invoke(ackq, arguments, input=literal_eval(typed) if typed else None)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if file:
            Path(file).write_bytes(done.stdout_bytes)
        printed = b"" if file else done.stdout_bytes
        for text, mark in ((printed, "  | "), (done.stderr_bytes, "  ! ")):
            yield from ((mark + shown).rstrip() for shown in self._shown(text))
        if done.exit_code:
            yield f"  [{done.exit_code}]"

    def _shown(self, output):
        """The lines of an output, with placeholders."""
        text = output.decode(errors="backslashreplace").removesuffix("\n")
        if not text:
            return
        header, *rows = text.split("\n")
        for title in _AGE_TITLES.finditer(header) if header.isupper() else ():
            first, last = title.span()
            rows = [f"{row[:first]}<age>  {row[last:]}" for row in rows]
        for line in (header, *rows):
            placed = self._placed(_pretty(line))
            # The width of a table's column is that of what stands in it.
            shown = re.sub(r"(?<=\S) {2,}", "  ", placed) if "<" in self._placed(text) else placed
            yield from map(_escaped, shown.split("\n"))

    def _placed(self, text):
        text = text.replace(self._endpoint, "<endpoint>")
        for pattern, placeholder in _PLACEHOLDERS:
            text = re.sub(pattern, placeholder, text)
        return re.sub(r"\b[0-9a-f]{32}\b", self._id, text)

    def _id(self, match):
        return self._ids.setdefault(match[0], f"<id {len(self._ids) + 1}>")


def _pretty(line):
    """A line; a JSON document is indented where it is too long for a line."""
    if not line.startswith("{") or line == "{":
        return line
    document = json.loads(line)
    if "error" in document:  # a map of the protocol, which has no order
        document["error"]["fields"] = dict(sorted(document["error"]["fields"].items()))
    elif len(line) <= _WIDTH:
        return line
    return json.dumps(document, indent=2, ensure_ascii=False)


def _escaped(line):
    """A line without control characters."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", line)
