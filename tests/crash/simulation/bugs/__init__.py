"""Planted bugs: safety lines of the product that are taken away, for the simulation to find."""

from tests.crash.simulation.bugs.answers import ANSWERS
from tests.crash.simulation.bugs.disk import DISK
from tests.crash.simulation.bugs.links import LINKS
from tests.crash.simulation.bugs.patching import Bug
from tests.crash.simulation.bugs.rules import RULES

BUGS: dict[str, Bug] = {bug.name: bug for bug in (*DISK, *ANSWERS, *RULES, *LINKS)}
assert len(BUGS) == len(DISK) + len(ANSWERS) + len(RULES) + len(LINKS), "names are unique"
