"""The Spark driver of [query.py](query.py) as a process that is killed and restarted."""

import itertools
import json
from pathlib import Path

from tests.crash import fire, standing
from tests.crash.harness import last_error, spark_process


class DriverProcess:
    """A driver in a process group of its own, so that SIGKILL ends its JVM too.

    Args:
        folder: Folder for checkpoints, tables and logs.
        endpoint: The local broker, or a relay to it.
        to_table: Queues that go to a Delta table each.
        to_queue: Queues that go to another queue each, as pairs.
        id_of_body: Whether a message's body becomes its id.
        retain: Each query has a session of its queue's name, which retains all that it accepts; a
            new checkpoint reads that again.

    Attributes:
        ended: The reason of each end that was no kill.
    """

    def __init__(
        self, folder, endpoint, *, to_table=(), to_queue=(), id_of_body=False, retain=False
    ):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._queues = [*to_table, *(queue for queue, _ in to_queue)]
        targets = dict.fromkeys(to_table) | dict(to_queue)
        self._plan = {"endpoint": endpoint, "folder": str(self.folder), "targets": targets}
        self._plan |= {"id_of_body": id_of_body, "retain": retain}
        self._process = None
        self._runs = 0
        self._before = {}
        self.ended = []

    def start(self):
        """Starts the driver, from its checkpoints."""
        self._runs += 1
        self._before = self._batches()
        arguments = ["-m", "tests.crash.links.query", json.dumps(self._plan)]
        self._process = spark_process(arguments, self._log, self.folder / "local")

    @property
    def pid(self):
        """The process id of the driver."""
        return self._process.pid

    @property
    def working(self):
        """Whether it runs, and has finished a batch of each of its queries since its start."""
        if self._process is None or self._process.poll() is not None:
            return False
        now = self._batches()
        return all(now[queue] > self._before[queue] for queue in self._queues)

    def kill(self):
        """Sends SIGKILL to the driver, its JVM and its workers."""
        if self._process is not None:
            fire.kill_group(self._process.pid)
            self._process.wait()

    def look_after(self):
        """Restarts the driver if it has ended by itself, and records the reason."""
        if self._process.poll() is not None:
            self.ended.append(f"exit status {self._process.returncode}: {self._reason()}")
            self.kill()
            self.start()

    @property
    def _log(self):
        return self.folder / f"driver-{self._runs:03d}.log"

    def _reason(self):
        """The error of the first query that failed, or the last error of its log."""
        lines = self._log.read_text(errors="replace").splitlines()
        for line, after in itertools.pairwise(lines):
            if "terminated with error" in line:
                return after[:300]
        return last_error(self._log)

    def _batches(self):
        """The last batch in each commit log."""
        return {
            queue: standing.newest(self.folder / f"checkpoint-{queue}" / "commits")
            for queue in self._queues
        }
