"""The command line of a job: the arguments that jobs share, and the types of their values."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ackq import units
from ackq.errors import InvalidArgumentError
from kit import connection

EXIT_STATUS: Final = (
    "Exit status: 0 all counts agree; 1 they do not, or the job failed; 2 wrong usage; "
    "130 interrupted."
)
AVAILABLE_NOW: Final = {"availableNow": True}
TRIGGER_HELP: Final = (
    "availableNow (default): process all messages that are ready, then end; once: the same in one "
    "micro-batch; an interval such as 5s: run until Ctrl-C"
)


def parser(description: str) -> argparse.ArgumentParser:
    """The parser of a job, with the arguments that all jobs have: endpoint and security."""
    # Else "--token SECRET" would be taken for an abbreviation of --token-file.
    made = argparse.ArgumentParser(description=description, epilog=EXIT_STATUS, allow_abbrev=False)
    made.add_argument(
        "--endpoint", metavar="HOST:PORT", help="a running broker; without it the job starts one"
    )
    connection.add_security(made)
    return made


def add_query(made: argparse.ArgumentParser, owner: str) -> None:
    """Adds the arguments of a job that runs a query; each `--option` is an option of `owner`."""
    add = made.add_argument
    add("--trigger", type=trigger, default=AVAILABLE_NOW, help=TRIGGER_HELP)
    option = pair("NAME=VALUE", f"an option of {owner}, repeatable")
    add("--option", **{**option, "type": lambda text: _option(*option["type"](text))})
    add("--limit", type=positive, help="without --endpoint: the maximum number of flights")
    add("--verbose", action="store_true", help="show Spark's log on the screen")


def given(made: argparse.ArgumentParser, args: argparse.Namespace) -> set[str]:
    """Names of the arguments that are not at their defaults."""
    return {name for name, value in vars(args).items() if value != made.get_default(name)}


def check_demonstration(
    made: argparse.ArgumentParser, args: argparse.Namespace, *allowed: str
) -> None:
    """Refuses, for a run without --endpoint, all arguments but `allowed`."""
    if given(made, args) - {*allowed}:
        *first, last = (f"--{name}" for name in allowed)
        made.error(f"without --endpoint only {', '.join(first)} and {last} have a meaning")


def trigger(text: str) -> dict[str, Any]:
    """Arguments of `DataStreamWriter.trigger`, from `availableNow`, `once` or a time like `5s`."""
    if text == "availableNow":
        return AVAILABLE_NOW
    if text == "once":
        return {"once": True}
    try:
        interval_ms = units.milliseconds(text, option="--trigger")
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(f"{error.message} Or use availableNow, or once.") from None
    return {"processingTime": f"{interval_ms} milliseconds"}


def pair(metavar: str, described: str) -> dict[str, Any]:
    """Arguments of `add_argument` for a repeatable option with values like NAME=TEXT."""

    def parse(text: str) -> tuple[str, str]:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise argparse.ArgumentTypeError(f"{text!r}: use {metavar}")
        return name, value

    return {
        "metavar": metavar,
        "type": parse,
        "action": "append",
        "default": [],
        "help": described,
    }


def _option(name: str, value: str) -> tuple[str, str]:
    """Refuses an option of the source that would name another place than the job settles at."""
    if name.lower() in {"endpoint", "queue"}:
        raise argparse.ArgumentTypeError(f"{name}: use --{name.lower()}")
    return name, value


def positive(text: str) -> int:
    """Whole number, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number, 1 or more")
    return int(text)
