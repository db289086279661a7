"""`python -m tests.crash.overload PART`: overloads a broker, and checks what must still hold."""

import argparse
import sys

from tests.crash.overload import channels, disk, readers

PARTS = {"channels": channels, "disk": disk, "readers": readers}


def main():
    """Runs the named part; the exit status is 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.overload", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    for name, part in PARTS.items():
        part.add_arguments(parts.add_parser(name, help=part.__doc__.splitlines()[0]))
    args = parser.parse_args()
    held = PARTS[args.part].run(args)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
