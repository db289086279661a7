"""A run of a job: its temporary folder, a broker of its own, and its exit status."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pyspark.errors import PySparkException

import ackq_broker
from ackq.client import Admin, Broker
from ackq.errors import AckqError
from kit import JobError, complain, interrupts, java, say


class Workspace(NamedTuple):
    """A temporary folder of one run, and the file that Spark logs to (None: the screen)."""

    folder: Path
    log: Path | None


def run(
    name: str, job: Callable[[Workspace], int], *, verbose: bool, with_spark: bool = True
) -> int:
    """Runs a job in a temporary folder; its end becomes the exit status.

    The folder is removed when the job succeeds or is interrupted; after a failure it is kept, with
    Spark's log, and printed.

    Args:
        name: The job's name, for the folder.
        job: Returns the exit status; 0 is success.
        verbose: Leave Spark's log on the screen.
        with_spark: Whether the job starts Spark, which needs Java.

    Returns:
        The job's status; 1 after an error; 130 after Ctrl-C or SIGTERM.
    """
    interrupts.raise_at_once()
    folder = Path(tempfile.mkdtemp(prefix=f"ackq-{name}-"))
    work = Workspace(folder, None if verbose else folder / "spark.log")
    status = 1
    try:
        if with_spark:
            java.require_java()
        status = job(work)
    except KeyboardInterrupt:
        status = interrupts.EXIT_STATUS
    except (JobError, AckqError) as error:
        complain(f"error: {error}")
    except PySparkException as error:
        complain(f"error: {cause(str(error))}")
    except Exception:
        # Spark's JVM may have got the same signal and ended, or a call to it was interrupted.
        if not interrupts.requested():
            raise
        status = interrupts.EXIT_STATUS
    keep = status not in (0, interrupts.EXIT_STATUS) and any(folder.iterdir())
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    if status == interrupts.EXIT_STATUS:
        say("Interrupted. Temporary files are removed; a checkpoint that you named stays.")
    if keep:
        complain(f"The run's files, with Spark's log: {folder}")
    return status


@contextlib.contextmanager
def own_broker(work: Workspace) -> Iterator[tuple[Broker, Admin]]:
    """A broker in a child process, with its data in the folder, and an admin client of it."""
    with ackq_broker.embedded(data=work.folder / "broker") as started:
        broker = Broker(started.endpoint)
        with Admin(broker) as admin:
            say(f"A broker is up at {broker.endpoint}.")
            yield broker, admin


def cause(message: str) -> str:
    """The cause in a message: its last error of ackq or a job, else of Spark, else its start."""
    for kind in (r"ackq\.errors\.\w+|kit\.JobError", r"pyspark\.errors\.[\w.]+"):
        found: list[str] = re.findall(rf"^(?:\S*\s)?(?:{kind}): .*$", message, re.MULTILINE)
        if found:
            return found[-1].split(": ", 1)[1]
    return "\n".join(message.strip().splitlines()[:5])
