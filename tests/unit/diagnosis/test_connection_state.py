"""Q9: diagnosis of the connection to a broker: one finding at the failing step."""

from dataclasses import replace

import pytest

from ackq.diagnosis.connection_state import check_connection
from ackq.diagnosis.finding import Severity, broken
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


def test_a_sound_connection():
    """Each step of a working connection has an OK finding."""
    findings = check_connection(replace(SOUND, queue="q"))
    assert [each.code for each in findings] == ["endpoint", "version", "clock", "queue"]
    assert findings[0].sentence == "The broker at host:1 answers, not encrypted, in 3 ms."
    assert not broken(findings)


@pytest.mark.parametrize(
    ("facts", "code", "remedy"),
    [
        (replace(UNKNOWN, resolve_error="Name unknown"), "endpoint-name", "ACKQ_ENDPOINT"),
        (replace(UNKNOWN, connect_error="refused"), "endpoint-closed", "ackq-broker serve"),
        (replace(UNKNOWN, speaks_tls=True), "tls-needed", "--tls"),
        (replace(UNKNOWN, unauthenticated=True), "token", "--token-file"),
        (replace(UNKNOWN, denied=True), "permission", "observer"),
        (replace(UNKNOWN, health_error="?"), "not-a-broker", "proxy"),
        (UNKNOWN, "broker-answer", "log"),
    ],
)
def test_where_the_way_ends(facts, code, remedy):
    """One problem for the failing step, and none for its consequences."""
    (finding,) = check_connection(facts)
    assert (finding.code, finding.severity) == (code, Severity.PROBLEM)
    assert remedy in finding.remedy


@pytest.mark.parametrize("facts", [SOUND, replace(UNKNOWN, connect_error="refused")])
def test_a_proxy(facts):
    """A9: a proxy is named, whether the broker is reached or not."""
    (finding,) = [
        each
        for each in check_connection(replace(facts, proxy="https_proxy"))
        if each.code == "proxy"
    ]
    assert "the variable https_proxy names" in finding.sentence
    assert "no_proxy" in finding.remedy


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("certificate has expired", "Renew"),
        ("Hostname mismatch, certificate is not valid for 'x'.", "--server-name"),
        ("self-signed certificate in certificate chain", "--ca"),
        ("unable to get local issuer certificate", "--ca"),
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


@pytest.mark.parametrize(
    ("skew_ms", "severity", "words"),
    [
        (-5_000, None, ""),
        (6_000, Severity.WARNING, "6 s ahead of"),
        (-3_600_000, Severity.PROBLEM, "1.0 h behind"),
    ],
)
def test_the_clocks(skew_ms, severity, words):
    """Q8: a small clock difference is a warning, a large one a problem."""
    found = worst(replace(SOUND, skew_ms=skew_ms)).get("clock")
    assert (found and found.severity) == severity
    assert words in (found.sentence if found else "")


def test_a_slow_answer_is_no_difference():
    """A clock difference that the answer's round trip may explain is not reported."""
    assert worst(replace(SOUND, skew_ms=20_000, round_trip_ms=16_000)) == {}


@pytest.mark.parametrize(
    ("facts", "code", "severity"),
    [
        (info(version="2.0"), "version", Severity.WARNING),
        (info(blocked="The disk has no room."), "blocked", Severity.PROBLEM),
        (info(held_back=2), "history", Severity.PROBLEM),
        (info(clock_jump_ms=5), "clock-jump", Severity.WARNING),
        (replace(SOUND, serving=False), "not-serving", Severity.WARNING),
        (
            replace(SOUND, certificate_ends_us=NOW_US + 3 * DAY_US),
            "certificate-ends",
            Severity.WARNING,
        ),
        (replace(SOUND, queue="q", queue_error="There is none."), "queue", Severity.PROBLEM),
        (
            replace(SOUND, queue="q", queue_error="read on queue 'q'", queue_denied=True),
            "queue-permission",
            Severity.PROBLEM,
        ),
    ],
)
def test_what_is_wrong_with_a_broker_that_answers(facts, code, severity):
    """Each problem is the only finding that is not OK."""
    found = worst(facts)
    assert {name: each.severity for name, each in found.items()} == {code: severity}


def test_an_older_broker_does_not_tell_its_time():
    """A broker that does not report its time has no clock finding."""
    assert "clock" not in {each.code for each in check_connection(info(now_us=0))}
