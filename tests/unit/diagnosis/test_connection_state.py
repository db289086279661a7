"""Q9: diagnosis of the connection to a broker: one finding at the failing step."""

from dataclasses import replace

import pytest

from ackq.diagnosis.connection_state import check_connection
from ackq.diagnosis.finding import Severity
from ackq.diagnosis.installation_facts import BrokerFacts
from ackq.info import ServerInfo

NOW_US = 1_357_034_400_000_000
DAY_US = 24 * 3600 * 1_000_000
SOUND = BrokerFacts(
    "host:1",
    serving=True,
    info=ServerInfo(version="1.0", now_us=NOW_US),
    client_version="1.0",
    round_trip_ms=3,
)
UNKNOWN = replace(SOUND, info=None)


def info(**fields):
    fields = {"version": "1.0", "now_us": NOW_US, **fields}
    return replace(SOUND, info=ServerInfo(**fields))


def worst(facts):
    return {each.code: each for each in check_connection(facts) if each.severity is not Severity.OK}


def test_a_proxy():
    """A9: a proxy is named, whether the broker is reached or not."""
    for facts in (SOUND, replace(UNKNOWN, connect_error="refused")):
        found = check_connection(replace(facts, proxy="https_proxy"))
        (finding,) = [each for each in found if each.code == "proxy"]
        assert "the variable https_proxy names" in finding.sentence
        assert "no_proxy" in finding.remedy


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("certificate has expired", "Renew"),
        ("self-signed certificate in certificate chain", "--ca"),
        ("wrong version number", "leave out --tls"),
        ("tlsv13 alert certificate required", "--cert"),
        ("something else", "log"),
    ],
)
def test_why_tls_fails(error, remedy):
    """The remedy follows from OpenSSL's reason."""
    (finding,) = check_connection(replace(UNKNOWN, tls=True, tls_error=error))
    assert finding.code == "tls"
    assert error in finding.sentence
    assert remedy in finding.remedy


def test_a_slow_answer_is_no_difference():
    """A clock difference that the answer's round trip may explain is not reported."""
    assert worst(replace(SOUND, skew_ms=20_000, round_trip_ms=16_000)) == {}


ENDS = {"certificate_ends_us": NOW_US + 3 * DAY_US}
MISSING = {"queue": "q", "queue_error": "There is none."}


@pytest.mark.parametrize(
    ("facts", "code", "severity"),
    [
        (info(version="2.0"), "version", Severity.WARNING),
        (info(blocked="The disk has no room."), "blocked", Severity.PROBLEM),
        (info(held_back=2), "history", Severity.PROBLEM),
        (info(clock_jump_ms=5), "clock-jump", Severity.WARNING),
        (replace(SOUND, serving=False), "not-serving", Severity.WARNING),
        (replace(SOUND, **ENDS), "certificate-ends", Severity.WARNING),
        (replace(SOUND, **MISSING), "queue", Severity.PROBLEM),
        (replace(SOUND, **MISSING, queue_denied=True), "queue-permission", Severity.PROBLEM),
    ],
)
def test_what_is_wrong_with_a_broker_that_answers(facts, code, severity):
    """Each problem is the only finding that is not OK."""
    found = worst(facts)
    assert {name: each.severity for name, each in found.items()} == {code: severity}
