"""Transcripts of the command line, compared whole: text, JSON, errors and exit statuses.

Each text in `transcripts` is one session against a broker of its own. To record what the commands
print now, and then read what changed with `git diff`:

    ACKQ_TRANSCRIPTS=record python -m pytest tests/wire/cli/test_transcripts.py

A new command in a transcript needs its line `$ ackq ...` alone.
"""

import difflib
import os
from pathlib import Path

import pytest

from ackq.client import close_channels
from ackq_broker import embedded
from tests.fakes import machine
from tests.wire.cli.steps import Steps
from tests.wire.cli.transcript import Player

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_commands_print_what_is_recorded(path, tmp_path, monkeypatch):
    """P3, P7, P8, P13, C4, C7, C8, C13, C14, Q1-Q6, Q8, Q9, S5, S6, S8, S14, K3, A10, L25, L26, M4.

    Also O7. Each command prints what its transcript has. A transcript names the rules of its
    commands.
    """
    monkeypatch.chdir(tmp_path)
    recorded = path.read_text()
    # Who sends no heartbeat is live for longer than a test takes.
    env = machine.with_limits(tmp_path, {"HEARTBEAT_MS": 1_000_000})
    with embedded(sync=False, env=env) as broker, Steps(broker.endpoint) as steps:
        played = Player(broker.endpoint, steps).play(recorded)
    close_channels()
    if os.environ.get("ACKQ_TRANSCRIPTS") == "record":
        path.write_text(played)
    found = difflib.unified_diff(recorded.splitlines(), played.splitlines(), lineterm="")
    difference = "\n".join(found)
    assert not difference, difference
