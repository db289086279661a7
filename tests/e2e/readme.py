"""Command lines of jobs in connector/docs/spark.md, as words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_README = Path(__file__).parents[2] / "connector/docs/spark.md"


def job_lines(*having: str) -> list[list[str]]:
    """The name and arguments of each job in the README's shell blocks that has these words."""
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
    """A command line with other values of arguments such as `--amqp`, and another home folder.

    Args:
        line: The job's name and arguments.
        values: Values by the argument's name without dashes, `_` for `-`; `home` replaces `~`.
    """
    home = str(values.pop("home"))
    options = {"--" + name.replace("_", "-"): str(value) for name, value in values.items()}
    said = [word.replace("~", home) for word in line]
    assert set(options) <= set(said), f"{line} has no {options}"
    return [options.get(before, word) for before, word in zip(["", *said[:-1]], said, strict=True)]
