"""`ackq top`: the queues of a broker, the one with the oldest message first, as they change."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

import click

from ackq.cli.context import Target, connected
from ackq.cli.output import age, fitted, print_json_line, print_table
from ackq.cli.parameters import Duration
from ackq.cli.queue_rates import Look, QueueRow, rows
from ackq.diagnosis import wording
from ackq.errors import AckqError
from ackq.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ackq.client import Admin

_COLUMNS: Final = ("QUEUE", "OLDEST", "READY", "UNACKED", "IN/S", "OUT/S", "READ BY")
_LEFT: Final = frozenset({"QUEUE", "READ BY"})
# A line is marked when the oldest message is older than this: the alert rules warn at this age.
_OLD_MS: Final = 15 * 60 * 1000
_KEY_S: Final = 0.1
_HEAD_LINES: Final = 4
_NO_KEY: Final = b"\0"
_QUIT: Final = re.compile(rb"[qQ\x04]")
# What a terminal sends for an arrow or a function key.
_OTHER_KEY: Final = re.compile(rb"\x1b[O\[][0-9;]*.?")


@click.command()
@click.option(
    "--interval",
    "interval_ms",
    type=Duration(least_ms=100),
    default="2s",
    show_default=True,
    help="Time between two updates, over which rates are measured.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Maximum number of queues to show.")
@click.option("--once", is_flag=True, help="Print once, after one interval, and end.")
@connected
def top(target: Target, *, interval_ms: int, count: int | None, once: bool) -> None:
    """Show the queues, the one with the oldest message first; `q` ends it.

    Without a terminal a table is printed at each interval, and with --json a line of JSON.
    """
    interval = interval_ms / 1000
    with target.admin() as admin:
        if not (once or target.as_json) and sys.stdin.isatty() and sys.stdout.isatty():
            _watch(admin, target.broker.endpoint, interval, count)
            return
        before = look(admin)
        while True:
            time.sleep(interval)
            now = look(admin)
            _print(now, rows(now, before)[:count], as_json=target.as_json)
            if once:
                return
            before = now


def look(admin: Admin) -> Look:
    """Asks the broker for its queues and sessions, and why publishers are blocked."""
    at_s = time.monotonic()
    queues, sessions = admin.queues(), admin.sessions()
    return Look(at_s, tuple(queues), tuple(sessions), admin.info().blocked)


def _print(now: Look, found: Sequence[QueueRow], *, as_json: bool) -> None:
    if as_json:
        print_json_line({"blocked": now.blocked, "queues": [row.plain() for row in found]})
        return
    if now.blocked:
        click.echo(f"publishers are blocked: {printable(now.blocked)}")
    print_table(_COLUMNS, (_cells(row) for row in found))


def _cells(row: QueueRow) -> tuple[str, ...]:
    return (
        row.queue,
        age(row.oldest_age_ms),
        f"{row.ready:,}",
        f"{row.unacked:,}",
        _rate(row.in_per_s),
        _rate(row.out_per_s),
        row.holder,
    )


def _rate(per_s: float | None) -> str:
    if per_s is None:
        return "-"
    return f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.1f}"  # noqa: PLR2004


# --- on a terminal ---


def _watch(admin: Admin, endpoint: str, seconds: float, count: int | None) -> None:
    """Draws the result of each look until `q`; waits for a broker that is unavailable."""
    from rich.console import Console  # noqa: PLC0415 - printing once does not need it
    from rich.live import Live  # noqa: PLC0415

    console = Console(markup=False, highlight=False, emoji=False)
    before, now = None, look(admin)  # an error of the first look ends the command
    error = ""
    answers = SimpleQueue[Look | AckqError]()
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            found = rows(now, before)
            room = max(console.height - _HEAD_LINES, 1)
            shown = found[: min(count or room, room)]
            drawn = screen(endpoint, now, shown, len(found), error, console.width)
            live.update(drawn, refresh=True)
            # In a thread: an unavailable broker is retried for a long time, and `q` must work.
            Thread(target=_answer, args=(admin, seconds, answers), daemon=True).start()
            while answers.empty():
                if _ends(pressed()):
                    return
            answer = answers.get()
            if isinstance(answer, Look):
                before, now, error = now, answer, ""
            else:
                error = answer.message


def _answer(admin: Admin, seconds: float, answers: SimpleQueue[Look | AckqError]) -> None:
    """Waits `seconds`, takes a look, and puts the result or the error into `answers`."""
    time.sleep(seconds)
    try:
        answers.put(look(admin))
    except AckqError as error:
        answers.put(error)


def screen(
    endpoint: str, now: Look, shown: Sequence[QueueRow], queues: int, error: str, width: int
) -> RenderableType:
    """The content of the terminal: lines about the broker, and a table of queues."""
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    ready, unacked = (sum(q.ready for q in now.queues), sum(q.unacked for q in now.queues))
    held = f"{ready:,} ready  {unacked:,} unacked"
    head = f"{endpoint}  {wording.count(queues, 'queue')}  {held}"
    if queues > len(shown):
        head += f"  (the {len(shown)} oldest shown)"
    lines = [Text(printable(head), "bold")]
    if now.blocked:
        lines.append(Text(f"publishers are blocked: {printable(now.blocked)}", "bold red"))
    if error:
        lines.append(Text(f"no answer: {printable(error)}", "bold red"))
    table = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    for name in _COLUMNS:
        left = name in _LEFT
        table.add_column(
            name, justify="left" if left else "right", no_wrap=True, overflow="ellipsis"
        )
    cells = [tuple(map(printable, _cells(row))) for row in shown]
    whole = [name not in _LEFT for name in _COLUMNS]
    for row, line in zip(shown, fitted([_COLUMNS, *cells], width, whole)[1:], strict=True):
        style = "yellow" if row.oldest_age_ms > _OLD_MS else ""
        table.add_row(*map(Text, line), style=style)
    return Group(*lines, table)


def _ends(keys: bytes) -> bool:
    """Whether `q` is among the pressed keys, or the input was closed."""
    return not keys or _QUIT.search(_OTHER_KEY.sub(b"", keys)) is not None


@contextmanager
def _keys() -> Iterator[Callable[[], bytes]]:
    """Yields a function that returns the keys pressed within a tenth of a second, or `_NO_KEY`.

    It reads the terminal itself: what Python's buffer has read, `select` does not report.
    """
    import termios  # noqa: PLC0415 - not on every system
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield (
            lambda: (
                os.read(descriptor, 64)
                if select.select([descriptor], [], [], _KEY_S)[0]
                else _NO_KEY
            )
        )
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
