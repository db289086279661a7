"""A finding: one sentence that states a condition, its severity, and the command that helps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum


class Severity(Enum):
    """Severity of a finding, the worst first."""

    PROBLEM = "problem"  # stuck until somebody acts
    WARNING = "warning"  # works, but degraded
    OK = "ok"  # checked and in order
    NOTE = "note"  # an expected state


_ORDER = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One state of a queue, link, machine or broker, described in a sentence.

    Attributes:
        code: Stable name of the state for programs, in lower case with dashes.
        severity: Severity of the state.
        sentence: The state in words for people, with numbers and names.
        remedy: A command or an instruction; empty if nothing is to be done.
    """

    code: str
    severity: Severity
    sentence: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """The fields as JSON values."""
        return {**asdict(self), "severity": self.severity.value}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Sorts findings, the worst first; findings of equal severity keep their order."""
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])


def broken(findings: Iterable[Finding]) -> bool:
    """Whether any of the findings is a problem."""
    return any(finding.severity is Severity.PROBLEM for finding in findings)
