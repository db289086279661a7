"""`python -m tests.crash.links`: see `fire`."""

import sys

from tests.crash.links.fire import main

sys.exit(main())
