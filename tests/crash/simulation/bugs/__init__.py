"""Planted bugs: safety lines of the product that are removed, for the simulation to find."""

from tests.crash.simulation.bugs.answers import ANSWERS
from tests.crash.simulation.bugs.clients import CLIENTS
from tests.crash.simulation.bugs.disk import DISK
from tests.crash.simulation.bugs.links import LINKS
from tests.crash.simulation.bugs.owners import OWNERS
from tests.crash.simulation.bugs.patching import Bug
from tests.crash.simulation.bugs.rules import RULES

_ALL = (DISK, ANSWERS, RULES, OWNERS, CLIENTS, LINKS)
BUGS: dict[str, Bug] = {name: bug for bugs in _ALL for name, bug in bugs.items()}
assert len(BUGS) == sum(map(len, _ALL)), "names are unique"
