"""The common parts of link runs: the local broker, the links' process, relays and faults."""

import abc
import argparse
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ackq.client import Admin, close_channels
from ackq_broker import embedded, embedding
from tests.crash.links.driver import DriverProcess
from tests.crash.links.faults import Faults
from tests.crash.links.sides import SparkSide
from tests.crash.links.summary import COUNTS, fault_lines, status
from tests.fakes.faults import Schedule
from tests.fakes.relay import Relay
from tests.wire.operations.processes import command, environment

# The queues of the local broker that a query reads and writes, and the links to and from them.
IN, OUT = "in", "out"
# Of either link: far fewer messages are in flight than Artemis remembers (L23).
PREFETCH = 500
CALM_S = 600
STOP_S = 300
# For a starved machine, or a log of some 100,000 records: a tenth of a millisecond of CPU each.
START_S = 300.0
# Share of the connections that are reset, each at a byte of its own.
RESETS = 0.5


class FaultRun(abc.ABC):
    """A run of links under faults, as a context manager; ends all that `build` starts.

    Args:
        seed: Seed of all decisions.
        folder: Folder for data and logs.

    Attributes:
        figures: Counts, the faults among them.
        problems: Violations; the first one ends the run.
        stopping: Set when all is done.
        spark: The side of Spark's driver; None: there is none.
        relays: Relays by the name of their target.
    """

    def __init__(self, seed, folder):
        self.seed = seed
        self.folder = folder
        self.figures = Counter()
        self.problems = []
        self.stopping = threading.Event()
        self.spark = None
        self.relays = {}
        self._stack = ExitStack()
        self._link = None
        self._link_config = folder / "links.toml"
        self._edge_ended_at_start = False

    def __enter__(self):
        embedding._START_S = START_S
        with ExitStack() as stack:
            self.edge = stack.enter_context(embedded(data=self.folder / "edge"))
            stack.callback(close_channels)
            self.build(stack)
            stack.callback(self._end_link)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    @abc.abstractmethod
    def build(self, stack):
        """Starts the remote brokers, and makes queues and relays."""

    def report(self, problem):
        """Records a violation, which ends the run."""
        print(f"{time.strftime('%X')} {problem}", flush=True)
        self.problems.append(problem)

    # --- for those that build ---

    def relay(self, stack, name, endpoint):
        """A relay to an endpoint, which resets half of its connections at a byte of their own."""
        schedule = Schedule(f"{self.seed} {name}", ("reset",))

        def faults(number):
            some = random.Random(f"{self.seed} {name} {number}").random() < RESETS
            return schedule(number) if some else []

        relay = self.relays[name] = Relay(endpoint, faults)
        stack.callback(relay.close)
        return relay

    def write_links(self, endpoint, links):
        """Writes the configuration of the links' process: the endpoint, and each link's keys."""
        lines = ["[edge]", f'endpoint = "{endpoint}"']
        for keys in links:
            lines.append("[[link]]")
            lines += [
                f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"'
                for name, value in keys.items()
            ]
        self._link_config.write_text("\n".join(lines))

    # --- faults ---

    def kinds(self):
        """The faults by name."""
        return {
            "kill link": self.kill_link,
            "kill edge": self.kill_edge,
            "restart edge": self.restart_edge,
            **{f"reset {name}": self.reset(name) for name in self.relays},
            **({"kill driver": self.kill_driver} if self.spark is not None else {}),
        }

    def start_link(self):
        """Starts the process with all links."""
        with (self.folder / "link.log").open("ab") as log:
            self._link = subprocess.Popen(
                command("link", "--config", self._link_config, "--log-format", "json"),
                env=environment(),
                stdout=log,
                stderr=log,
            )

    def kill_link(self):
        """Kills the links' process with SIGKILL, and starts another one."""
        if ended := self.link_ended:
            self.report(ended)
        self._end_link()
        self.start_link()

    def kill_edge(self):
        """Kills and restarts the local broker; False if Spark's driver would not get to work."""
        if not self._may_go():
            return False
        self.edge.kill()
        self.edge.restart()
        return True

    def restart_edge(self):
        """Stops the local broker, which leaves a snapshot, and starts it; False as for a kill.

        Without a snapshot each start reads the log of the whole run.
        """
        if not self._may_go():
            return False
        self.edge.restart()
        return True

    def _may_go(self):
        """Whether the local broker may be ended; while a driver starts, only once.

        After its start the broker waits a heartbeat for the holder that it knew (S3): a driver gets
        to work only if the broker lives that long.
        """
        if self.spark is None or self.spark.driver.working:
            return True
        before, self._edge_ended_at_start = self._edge_ended_at_start, True
        return not before

    def kill_driver(self):
        """Kills Spark's driver with SIGKILL and starts another; False: it was not at work."""
        if not self.spark.kill():
            return False
        self._edge_ended_at_start = False
        return True

    def kill_and_start(self, server):
        """A fault that kills another broker with SIGKILL and starts it on its data."""

        def fault():
            server.kill()
            server.start()

        return fault

    def reset(self, name):
        """A fault that cuts all connections over a relay at once."""

        def fault():
            self.relays[name].cut()
            self.relays[name].heal()

        return fault

    # --- the end ---

    def calm(self):
        """Ends the resets of connections; counts those that happened."""
        for name, relay in self.relays.items():
            relay.calm()
            self.figures[f"reset at a byte {name}"] = len(relay.struck)

    def settle_down(self):
        """Waits until everything is finished; raises AssertionError with the run's problems."""
        deadline = time.monotonic() + CALM_S
        pause = threading.Event()
        waits = ""
        while time.monotonic() < deadline and not self.problems:
            waits = self.link_ended or self.unfinished()
            if not waits:
                return
            pause.wait(0.5)
        if waits:
            self.report(f"never finished: {waits}")
        assert not self.problems, self.problems

    @abc.abstractmethod
    def unfinished(self):
        """Describes work that is not finished; empty when everything is."""

    @property
    def link_ended(self):
        """Describes the end of the links' process; empty while it runs."""
        ended = self._link.poll()
        if ended is None:
            return ""
        said = (self.folder / "link.log").read_text().splitlines()[-1:]
        return f"the link's process ended by itself: {ended}, {said}"

    def finish(self):
        """Waits until everything is finished, and stops the links with nothing left behind them.

        A remote queue does not count messages that it delivered and the link has not taken; a stop
        gives them back. So a link that leaves messages is started again.
        """
        deadline = time.monotonic() + CALM_S
        while True:
            self.settle_down()
            self._link.terminate()
            if (status := self._link.wait(STOP_S)) != 0:
                self.report(f"the link's process ended with {status}")
            left = self.given_back()
            if not left or self.problems or time.monotonic() > deadline:
                break
            self.start_link()
        if left:
            self.report(f"{left} messages are left in the remote queues")

    @abc.abstractmethod
    def given_back(self):
        """The number of messages in the remote queues once the links have stopped."""

    def _end_link(self):
        if self._link is not None and self._link.poll() is None:
            self._link.kill()
            self._link.wait(STOP_S)


class Delivered(NamedTuple):
    """The content of the last queue, compared with the confirmed messages.

    Attributes:
        unanswered: Messages whose publish had no answer, each of which may be there once.
        strange: Messages that were never published, or have another body.
    """

    confirmed: int
    unanswered: int
    there: int
    lost: int
    doubled: int
    strange: int

    @property
    def wrong(self):
        """Whether any message is lost, doubled or strange."""
        return bool(self.lost or self.doubled or self.strange)


def delivered(names, confirmed, unanswered, forged=frozenset()):
    """Compares the names of the messages that arrived with those that were published.

    Args:
        names: One for each message.
        confirmed: Those that must be there.
        unanswered: Those that may be there.
        forged: Those that have another body.
    """
    times = Counter(names)
    return Delivered(
        len(confirmed),
        len(unanswered),
        times.total(),
        len(confirmed - times.keys()),
        times.total() - len(times),
        len((times.keys() - confirmed - unanswered) | forged),
    )


def burnt(run, seconds):
    """A run of a query; returns (violations, content of the last queue, the run)."""
    with run:
        found = run.run(seconds)
    return ([f"{found}"] if found.wrong else []) + run.problems, found, run


def delivered_lines(found, run):
    """The result of a run of a query, as lines of text."""
    yield from fault_lines(run.figures)
    yield ", ".join(f"{name} {value}" for name, value in found._asdict().items())


def command_line(document, burn, lines, more=None):
    """Runs from the command line; the status is 1 on any violation.

    Args:
        document: Its first line describes the command.
        burn: Given the options, the seconds and a folder, returns (violations, result, run).
        lines: Given the result and the run, returns lines of text.
        more: Further options, by name.
    """
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    for name, keys in (more or {}).items():
        parser.add_argument(name, **keys)
    said = parser.parse_args()
    print(f"seed {said.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ackq-links-", ignore_cleanup_errors=True) as folder:
        wrong, found, run = burn(said, 60 * said.minutes, Path(folder))
        print(*lines(found, run), sep="\n")
        return status(wrong, Path(folder))


class QueryRun(FaultRun):
    """A run from a remote queue to another one: a link to `in`, a query to `out`, a link from it.

    `run` needs `publishing`, a thread with an event `over` that ends it.
    """

    # Whether the query gives each message its body as its id.
    id_of_body = False

    def build(self, stack):
        inbound, outbound = self.links(stack)
        here = self.relay(stack, "here", self.edge.endpoint)
        driver = self.relay(stack, "spark", self.edge.endpoint)
        links = []
        with Admin(self.edge.endpoint) as admin:
            for name, direction, keys in ((IN, "in", inbound), (OUT, "out", outbound)):
                admin.declare_queue(name)
                both = {"name": name, "direction": direction, "queue": name, "prefetch": PREFETCH}
                links.append({**both, **keys})
        self.write_links(here.endpoint, links)
        process = DriverProcess(
            self.folder / "spark",
            driver.endpoint,
            to_queue=[(IN, OUT)],
            id_of_body=self.id_of_body,
        )
        self.spark = SparkSide(self, process)

    @abc.abstractmethod
    def links(self, stack):
        """Starts the remote brokers; returns the keys of the link in, and those of the link out."""

    def burn(self, publishing, seconds):
        """Runs faults for `seconds` once Spark works, then calm, until everything is finished."""
        self.publishing = publishing
        self.start_link()
        self.spark.start()
        publishing.start()
        self.spark.wait_working(CALM_S)
        Faults(self, self.kinds()).go_on(seconds)
        self.calm()
        publishing.over.set()
        publishing.join(CALM_S)
        self.finish()
        self.stopping.set()
        self.spark.join(STOP_S)
        with Admin(self.edge.endpoint) as admin:
            (info,) = (each for each in admin.links() if each.link == IN)
        self.figures.update({name: getattr(info, name) for name in (*COUNTS, "stored")})

    @property
    def accepted(self):
        """The number of messages that Spark has written."""
        with Admin(self.edge.endpoint) as admin:
            self.figures["written"] = admin.queue(OUT).published
        return self.figures["written"]

    def unfinished(self):
        with Admin(self.edge.endpoint) as admin:
            queues = [admin.queue(name) for name in (IN, OUT)]
            links = {info.link: info for info in admin.links()}
        for info in queues:
            if info.ready or info.unacked or info.delayed:
                return f"the queue {info.queue}: {info.ready} ready, {info.unacked} unacked"
        info = links[IN]
        if not info.live or info.held or info.settled:
            return f"the link: {info}"
        # Messages delivered remotely and not yet stored by the link are in no queue's count.
        known = len(self.publishing.confirmed)
        if self.accepted < known:
            return f"{self.accepted} of {known} written"
        return self.left_there()

    @abc.abstractmethod
    def left_there(self):
        """Describes messages that the first remote queue still has; empty when it has none."""
