"""A finding: one sentence on what is the case, how bad that is, and the command that helps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum


class Severity(Enum):
    """How bad a finding is; the worst comes first."""

    PROBLEM = "problem"  # nothing goes on without somebody's doing
    WARNING = "warning"  # it goes on, but not as it should
    OK = "ok"  # checked, and as it should be
    NOTE = "note"  # a state that is meant to be


_ORDER = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One state, in a sentence.

    Attributes:
        code: Its name for programs, lower case with dashes; it does not change.
        severity: How bad it is.
        sentence: What is the case, for people; numbers and names included.
        remedy: What to do: a command, or an instruction; empty: nothing.
    """

    code: str
    severity: Severity
    sentence: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """The fields as JSON can hold them."""
        return {**asdict(self), "severity": self.severity.value}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings, the worst first, else in the order in which they came."""
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])


def broken(findings: Iterable[Finding]) -> bool:
    """Whether one of them is a problem."""
    return any(finding.severity is Severity.PROBLEM for finding in findings)
