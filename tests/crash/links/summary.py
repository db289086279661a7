"""The result of a run under fire, as lines of text."""

from collections import Counter

FAULTS = ("kill", "pause", "restart", "reset")
# A link's own counts that describe the effect of its cuts (L26).
COUNTS = ("taken", "matched_held", "matched_settled", "ambiguous")


def lines(verdicts, figures):
    """A line for each combination, and the totals."""
    yield from (_line(each.name, verdict) for each, verdict in verdicts.items())
    yield from fault_lines(figures)
    with_ids = [verdict for each, verdict in verdicts.items() if each.content == "ids"]
    without = [verdict for each, verdict in verdicts.items() if each.content != "ids"]
    sums = {"with ids": with_ids, "without ids": without, "in all": [*with_ids, *without]}
    yield from (_line(name, _sum(each)) for name, each in sums.items() if each)


def fault_lines(figures):
    """Lines with the counts of faults, and the links' counts of their effect."""
    kinds = {name: n for name, n in figures.items() if name.startswith(FAULTS)}
    yield f"faults {sum(kinds.values())}: {_listed(kinds)}"
    yield f"links {_listed({name: figures[name] for name in COUNTS})}"
    for name, n in figures.items():
        if name.startswith("drivers"):
            yield f"{name} {n}"


def status(wrong, folder):
    """The exit status of a run; prints the violations, and then the end of the links' log."""
    for each in wrong:
        print(f"WRONG {each}")
    if wrong:
        print((folder / "link.log").read_text()[-8000:])
    return 1 if wrong else 0


def _line(name, verdict):
    return (
        f"{name:28} published {verdict.published:6} and {verdict.unknown:2} unanswered,"
        f" accepted {verdict.accepted:6}, lost {verdict.lost}, doubled {verdict.doubled}"
        f" of {verdict.allowed} in doubt" + (" WRONG" if verdict.wrong else "")
    )


def _sum(verdicts):
    """The sum of several verdicts."""
    first, *others = verdicts
    for each in others:
        first = type(first)(*map(sum, zip(first, each, strict=True)))
    return first


def _listed(counts):
    return ", ".join(f"{name} {n}" for name, n in sorted(Counter(counts).items()))
