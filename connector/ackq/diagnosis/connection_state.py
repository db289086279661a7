"""Checks the path to a broker: reports the step that failed, with its remedy (Q9).

Invariant: pure; a step is judged only when the steps before it succeeded, so that one problem is
reported with its own remedy, and not a series of consequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ackq.diagnosis.finding import Finding, Severity
from ackq.diagnosis.installation_facts import BrokerFacts
from ackq.diagnosis.wording import argument, duration, instant
from ackq.info import ServerInfo

_SKEW_MS: Final = 5_000
_LARGE_SKEW_MS: Final = 300_000
_DAY_US: Final = 24 * 3600 * 1_000_000
_SOON_DAYS: Final = 14

# The first entry with a matching phrase counts; the phrases are OpenSSL's, in lower case.
_TLS_REMEDIES: Final = (
    (
        ("expired", "not yet valid"),
        "Renew the broker's certificate, or correct the clock of this machine.",
    ),
    (
        ("hostname mismatch", "ip address mismatch", "doesn't match", "is not valid for"),
        "Use the name in the broker's certificate, or give that name: --server-name NAME",
    ),
    (
        ("self-signed", "self signed", "unable to get", "verify failed"),
        "Trust the authority that signed the broker's certificate: --ca FILE",
    ),
    (
        ("wrong version number", "record layer", "unexpected eof", "reset by peer"),
        "The broker does not speak TLS on that port: leave out --tls, or use its TLS port.",
    ),
    (
        ("certificate required", "handshake failure"),
        "The broker asks for a certificate of the client: --cert FILE --key FILE",
    ),
)


def check_connection(facts: BrokerFacts) -> list[Finding]:
    """The findings about the path to a broker: the failed step, or the results of all checks."""
    ended = _way_ends(facts)
    if ended is not None:
        return [ended, *_proxy(facts)]
    assert facts.info is not None
    return [
        *_proxy(facts),
        _ok("endpoint", f"The broker at {facts.endpoint} answers{_how(facts)}."),
        *_certificate(facts, facts.info),
        *_serving(facts),
        *_version(facts, facts.info),
        *_clock(facts, facts.info),
        *_alarms(facts.info),
        *_queue(facts),
    ]


def _way_ends(facts: BrokerFacts) -> Finding | None:
    """The finding for the step that failed; None if the broker reported its server info."""
    where = f"The endpoint {facts.endpoint}"
    steps = (
        (
            bool(facts.resolve_error),
            "endpoint-name",
            f"{where} has no address: {facts.resolve_error}.",
            "Correct the name: --endpoint HOST:PORT, or the variable ACKQ_ENDPOINT",
        ),
        (
            bool(facts.connect_error),
            "endpoint-closed",
            f"{where} cannot be reached: {facts.connect_error}.",
            (
                "Check that the broker runs and listens on that address (on its machine: "
                "ackq-broker serve --data DIR --listen HOST:PORT), and that no firewall is between."
            ),
        ),
        (
            bool(facts.tls_error),
            "tls",
            f"{where} is reached, but the TLS handshake fails: {facts.tls_error}.",
            _tls_remedy(facts.tls_error),
        ),
        (
            facts.speaks_tls and not facts.tls and facts.info is None,
            "tls-needed",
            f"{where} speaks TLS, and this client does not.",
            "Turn TLS on: --tls, with --ca FILE for an authority of your own",
        ),
        (
            facts.unauthenticated,
            "token",
            facts.info_error,
            "Give the right token: --token-file FILE, or the variable ACKQ_TOKEN_FILE",
        ),
        (
            facts.denied,
            "permission",
            f"The token is valid, but its user may not do this: {facts.info_error}",
            "Ask the broker's operator for the role observer.",
        ),
        (
            bool(facts.health_error) and facts.info is None,
            "not-a-broker",
            (
                f"{where} is reached, but its server does not answer as a broker: "
                f"{facts.health_error}."
            ),
            "Check that it is the broker's port. A proxy in between has to pass HTTP/2 on.",
        ),
        (
            facts.info is None,
            "broker-answer",
            f"The broker at {facts.endpoint} does not report its state: {facts.info_error}",
            "See the broker's log.",
        ),
    )
    return next((_problem(*rest) for failed, *rest in steps if failed), None)


def _proxy(facts: BrokerFacts) -> Iterator[Finding]:
    if facts.proxy:
        yield Finding(
            "proxy",
            Severity.NOTE,
            f"Calls to {facts.endpoint} go through the proxy that the variable {facts.proxy} names;"
            " doctor's own steps for name, TCP and TLS do not.",
            "To bypass the proxy: name the host in the variable no_proxy.",
        )


def _tls_remedy(error: str) -> str:
    text = error.lower()
    for words, remedy in _TLS_REMEDIES:
        if any(word in text for word in words):
            return remedy
    return "See the broker's log."


def _how(facts: BrokerFacts) -> str:
    how = " over TLS" if facts.tls else ", not encrypted"
    return f"{how}, in {duration(facts.round_trip_ms)}"


def _certificate(facts: BrokerFacts, info: ServerInfo) -> Iterator[Finding]:
    if not facts.certificate_ends_us or not info.now_us:
        return
    days = (facts.certificate_ends_us - info.now_us) // _DAY_US
    if days < _SOON_DAYS:
        yield _warning(
            "certificate-ends",
            f"The broker's certificate ends at {instant(facts.certificate_ends_us)}, in {days} "
            "days.",
            "Renew it; the broker takes a new file without a restart.",
        )


def _serving(facts: BrokerFacts) -> Iterator[Finding]:
    if not facts.serving:
        yield _warning(
            "not-serving",
            "The broker reports that it does not serve: it starts, or drains before it stops.",
            "Wait; clients reconnect by themselves.",
        )


def _version(facts: BrokerFacts, info: ServerInfo) -> Iterator[Finding]:
    if info.version == facts.client_version:
        yield _ok("version", f"Broker and client have version {info.version}.")
        return
    yield _warning(
        "version",
        f"The broker has version {info.version}, this client {facts.client_version}. An older "
        "broker refuses calls that it does not know.",
        f"Install version {info.version} of the client, or upgrade the broker.",
    )


def _clock(facts: BrokerFacts, info: ServerInfo) -> Iterator[Finding]:
    if not info.now_us:
        return
    skew = abs(facts.skew_ms)
    side = "ahead of" if facts.skew_ms > 0 else "behind"
    # The skew is known only to within the round trip.
    if skew <= _SKEW_MS + facts.round_trip_ms:
        yield _ok("clock", f"The broker's time is within {duration(_SKEW_MS)} of this machine's.")
    else:
        make = _problem if skew > _LARGE_SKEW_MS else _warning
        yield make(
            "clock",
            f"The broker's time is {duration(skew)} {side} this machine's: publish times, expiries "
            "and the validity of certificates are wrong by that much.",
            "Set both clocks by NTP: timedatectl set-ntp true. A broker's time never goes back: if"
            " it was ahead, it waits until the clock has caught up.",
        )
    if info.clock_jump_ms:
        yield _warning(
            "clock-jump",
            f"The clock of the broker's machine jumped {duration(info.clock_jump_ms)} ahead. "
            "After 10 minutes the broker uses the new time, and messages that it makes overdue "
            "expire.",
            "Correct that machine's clock before then.",
        )


def _alarms(info: ServerInfo) -> Iterator[Finding]:
    if info.blocked:
        yield _problem(
            "blocked",
            f"Publishers are blocked: {info.blocked}",
            "See which queue is long: ackq queue list",
        )
    if info.held_back:
        yield _problem(
            "history",
            f"{info.held_back:,} publishers, sessions and writers of the time before the journal "
            "was restored or repaired are refused.",
            "If nothing important is missing: ackq broker accept-history",
        )


def _queue(facts: BrokerFacts) -> Iterator[Finding]:
    if not facts.queue:
        return
    if facts.queue_denied:
        yield _problem(
            "queue-permission",
            f"This user may not look at queue '{facts.queue}': {facts.queue_error}",
            "Ask the broker's operator for that permission.",
        )
    elif facts.queue_error:
        yield _problem(
            "queue",
            f"Queue '{facts.queue}' cannot be looked at: {facts.queue_error}",
            f"ackq queue declare {argument(facts.queue)}",
        )
    else:
        yield _ok("queue", f"Queue '{facts.queue}' exists, and this user may look at it.")


def _ok(code: str, sentence: str) -> Finding:
    return Finding(code, Severity.OK, sentence)


def _warning(code: str, sentence: str, remedy: str) -> Finding:
    return Finding(code, Severity.WARNING, sentence, remedy)


def _problem(code: str, sentence: str, remedy: str) -> Finding:
    return Finding(code, Severity.PROBLEM, sentence, remedy)
