"""Searches a seed that fails, over many worlds in several processes; replays and shrinks one."""

import argparse
import gc
import logging
import multiprocessing
import os
import shlex
import sys
import time
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from tests.crash.simulation.bugs import BUGS
from tests.crash.simulation.scenario import LinkScenario, Scenario
from tests.crash.simulation.world import World

SECONDS = 4.0
LINK_SECONDS = 8.0
# The garbage of this many worlds is collected at once.
_COLLECT_EVERY = 20
_CHUNK = 20
_MOST_SHOWN = 3
_REPORT_S = 30.0
_LEAST_SECONDS = 0.1
# The first seeds of the searches for planted bugs.
_FIRSTS = (10_000, 20_000, 30_000, 50_000)

_entered = []


class Choice(NamedTuple):
    """The part of a seed's world that is run: all of it, or less when it is shrunk.

    Attributes:
        seed: The seed.
        seconds: Until the world closes.
        without: Faults that are left out, by index.
        clients: Names of the clients to keep; None: those of the seed.
        links: It is a world with a link.
    """

    seed: int
    seconds: float
    without: tuple[int, ...] = ()
    clients: tuple[str, ...] | None = None
    links: bool = False

    def command(self, bug=None):
        """The command that runs it again."""
        parts = ["python tests/crash/simulate.py --replay", str(self.seed)]
        parts += ["--seconds", f"{self.seconds:g}"]
        if self.links:
            parts += ["--links"]
        if bug:
            parts += ["--bug", bug]
        if self.without:
            parts += ["--without", ",".join(map(str, self.without))]
        if self.clients is not None:
            parts += ["--clients", shlex.quote(",".join(self.clients))]
        return " ".join(parts)


class Result(NamedTuple):
    """Outcome of a world: its digest, its failure as text ("" for none), and its counts."""

    choice: Choice
    digest: str
    failure: str
    counts: Counter


def run(choice, *, keep_trace=False):
    """Runs one world, within `quiet`; returns the result and the world."""
    world = World(
        choice.seed,
        choice.seconds,
        without=choice.without,
        keep_trace=keep_trace,
        links=choice.links,
    )
    scenario = _scenario(choice, world)
    failure = ""
    try:
        world.run(scenario)
    except Exception:  # noqa: BLE001 - the seed failed, by any exception
        failure = traceback.format_exc()
    counts = Counter({"lives": world.process.lives, "steps": world.kernel.steps})
    counts.update({f"fault {fault.kind}": 1 for _, fault in world.faults})
    counts.update(scenario.counts())
    return Result(choice, world.digest, failure, counts), world


def _scenario(choice, world):
    return (LinkScenario if choice.links else Scenario)(world, choice.clients)


# --- many ---


def search(choices, *, jobs, bug=None, minutes=None, report=print):
    """Runs worlds in several processes; returns their counts and the failed results.

    Args:
        choices: The worlds.
        jobs: Number of processes.
        bug: Name of a planted bug.
        minutes: Ends after this many minutes.
        report: Called with a progress line now and then.
    """
    counts, failed = Counter(), []
    began_s = reported_s = time.monotonic()
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, _begin, (bug,)) as pool:
        for result in pool.imap_unordered(_run_one, choices, _CHUNK):
            counts["seeds"] += 1
            counts.update(result.counts)
            if result.failure:
                failed.append(result)
                report(f"seed {result.choice.seed} fails: {result.failure.splitlines()[-1]}")
            now_s = time.monotonic()
            if minutes is not None and now_s - began_s > minutes * 60:
                pool.terminate()
                break
            if now_s - reported_s > _REPORT_S:
                reported_s = now_s
                rate = counts["seeds"] / (now_s - began_s)
                report(f"{counts['seeds']} seeds, {len(failed)} fail, {rate:.1f} seeds/s")
    return counts, failed


@contextmanager
def quiet():
    """Context for worlds: no log, no warnings about work that a kill left, no garbage collection.

    The garbage of a world has to be collected here: a collection within another world would be
    random.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never ran
            yield
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook


def _begin(bug):
    # Kept, and never exited: the process ends with them.
    _entered.append(quiet())
    # Fibers hand over to each other: on one processor the switch is cheaper.
    processors = sorted(os.sched_getaffinity(0))
    index = multiprocessing.current_process()._identity[0]
    os.sched_setaffinity(0, {processors[index % len(processors)]})
    if bug is not None:
        _entered.append(BUGS[bug]())
    for each in _entered:
        each.__enter__()


def _run_one(choice):
    result, _ = run(choice)
    if not choice.seed % _COLLECT_EVERY:
        gc.collect()
    return result


# --- one ---


def shrink(choice, report=print):
    """A reduced choice that still fails: less time, fewer faults, fewer clients."""
    result, world = run(choice)
    assert result.failure, "that world does not fail"
    clients = choice.clients or tuple(_scenario(choice, world).names)
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(choice, [index for index, _ in world.faults], clients):
            result, found = run(candidate)
            if result.failure:
                choice, world, smaller = candidate, found, True
                clients = choice.clients or clients
                report(choice.command())
                break
    return choice


def _smaller(choice, faults, clients):
    """Slightly reduced choices, the largest reductions first."""
    if choice.seconds > _LEAST_SECONDS:
        yield choice._replace(seconds=round(choice.seconds * 0.5, 2))
    for client in clients if len(clients) > 1 else ():
        yield choice._replace(clients=tuple(each for each in clients if each != client))
    for fault in faults:
        yield choice._replace(without=(*choice.without, fault))


def replay(choice, *, log=False):
    """Runs a world with its trace printed; returns whether it fails."""
    if log:
        logging.disable(logging.NOTSET)
        logging.basicConfig(level=logging.DEBUG)
    result, world = run(choice, keep_trace=True)
    for index, fault in world.faults:
        print(f"fault {index}: {fault}")
    for line in world.lines:
        print(line)
    print(f"digest {result.digest}")
    print(result.failure or "OK")
    return bool(result.failure)


def main(arguments=None):
    """The command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.bugs is not None:
        return _find_bugs(options)
    chosen = options.replay if options.replay is not None else options.shrink
    if chosen is not None:
        without = tuple(int(each) for each in options.without.split(",") if each)
        clients = tuple(options.clients.split(",")) if options.clients else None
        choice = Choice(chosen, _seconds(options), without, clients, options.links)
        with quiet(), BUGS[options.bug]() if options.bug else nullcontext():
            if options.shrink is not None:
                print(shrink(choice).command(options.bug))
                return 0
            return replay(choice, log=options.log)
    choices = (Choice(seed, _seconds(options), links=options.links) for seed in _seeds(options))
    began_s = time.monotonic()
    counts, failed = search(choices, jobs=options.jobs, bug=options.bug, minutes=options.minutes)
    seconds = time.monotonic() - began_s
    print(f"{counts.pop('seeds', 0)} seeds in {seconds:.1f} s, {len(failed)} fail")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    for result in failed[:_MOST_SHOWN]:
        print(result.failure)
        print(result.choice.command(options.bug))
    return bool(failed)


def _seconds(options):
    return options.seconds or (LINK_SECONDS if options.links else SECONDS)


def _seeds(options):
    return range(options.first, options.first + options.seeds)


def _find_bugs(options):
    """Prints, per planted bug, how many seeds it took to find it, for several first seeds."""
    names = options.bugs.split(",") if options.bugs else list(BUGS)
    firsts = [int(each) for each in options.firsts.split(",")]
    hunts = [
        (name, range(first, first + options.seeds), options.seconds)
        for name in names
        for first in firsts
    ]
    missed = 0
    context = multiprocessing.get_context("fork")
    with context.Pool(options.jobs, _begin, (None,)) as pool:
        found = pool.imap(_hunt, hunts, 1)
        for name in names:
            needed = [next(found) for _ in firsts]
            missed += None in needed
            least = sorted(options.seeds + 1 if each is None else each for each in needed)
            median = least[len(least) // 2]
            each = ", ".join("-" if each is None else str(each) for each in needed)
            shown = f"> {options.seeds}" if median > options.seeds else median
            print(
                f"| `{name}` | {BUGS[name].rule} | {BUGS[name].what} | {shown} | {each} |",
                flush=True,
            )
    return missed


def _hunt(what):
    """The number of worlds until one fails with a bug; None: none of the given seeds failed."""
    name, seeds, seconds = what
    bug = BUGS[name]
    seconds = seconds or (LINK_SECONDS if bug.links else SECONDS)
    with bug():
        for number, seed in enumerate(seeds, 1):
            if _run_one(Choice(seed, seconds, links=bug.links)).failure:
                return number
    return None


def _parser():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=200, help="how many worlds")
    add("--first", type=int, default=0, help="the first seed")
    add("--minutes", type=float, help="stop after so long, however many worlds are left")
    add("--seconds", type=float, help="virtual seconds until a world closes")
    add("--links", action="store_true", help="worlds with a link to another broker")
    add("--jobs", type=int, default=2, help="processes")
    add("--bug", choices=sorted(BUGS), help="plant a bug")
    add(
        "--bugs",
        nargs="?",
        const="",
        metavar="NAME,...",
        help="seeds that these bugs, or all, take",
    )
    add("--firsts", default=",".join(map(str, _FIRSTS)), help="with --bugs: where seeds begin")
    add("--replay", type=int, metavar="SEED", help="run one world, with its trace")
    add("--shrink", type=int, metavar="SEED", help="find less of a failing world that still fails")
    add("--without", default="", metavar="N,...", help="with --replay: leave these faults out")
    add("--clients", metavar="NAME,...", help="with --replay: these clients alone")
    add("--log", action="store_true", help="with --replay: the broker's log, too")
    return parser
