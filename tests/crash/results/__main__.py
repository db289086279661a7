"""`python -m tests.crash.results`: see `page`."""

from tests.crash.results.page import main

main()
