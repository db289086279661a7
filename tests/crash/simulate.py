"""The broker in simulated worlds, one per seed: `python tests/crash/simulate.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.crash.simulation.search import main

if __name__ == "__main__":
    sys.exit(main())
