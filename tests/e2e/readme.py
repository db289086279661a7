"""Command lines of jobs in the connector's README, as words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_README = Path(__file__).parents[2] / "connector/README.md"


def job_lines(*having: str) -> list[list[str]]:
    """A job's name and its arguments, of each command of a shell block that has these words."""
    blocks = re.findall(
        r"^```bash\n(.*?)^```$", _README.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [
        shlex.split(line) for block in blocks for line in block.splitlines() if "jobs/" in line
    ]
    found = []
    for words in lines:
        places = [at for at, word in enumerate(words) if word.startswith("jobs/")]
        if places and set(having) <= set(words):
            name, *arguments = words[places[0] :]
            found.append([name.removeprefix("jobs/"), *arguments])
    return found


def changed(line: list[str], **values: object) -> list[str]:
    """A line whose arguments `--amqp` and so on have other values, and whose home is another.

    Args:
        line: The job's name and arguments.
        values: By the argument's name without dashes, `_` for `-`; `home` is what `~` stands for.
    """
    home = str(values.pop("home"))
    options = {"--" + name.replace("_", "-"): str(value) for name, value in values.items()}
    said = [word.replace("~", home) for word in line]
    assert set(options) <= set(said), f"{line} has no {options}"
    return [options.get(before, word) for before, word in zip(["", *said[:-1]], said, strict=True)]
