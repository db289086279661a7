"""Deployment files of the broker: a systemd unit, a container, Kubernetes objects (O1)."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from ackq import limits
from ackq_broker.cli.options import OPTIONS, ServeOptions, reserve, size
from ackq_broker.cli.settings import settings, variable

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "broker_stub/deploy"
UNIT = (DEPLOY / "ackq-broker.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()
OBJECTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
SYSTEMD = shutil.which("systemd-analyze")
# The oldest supported Kubernetes, and one of the newest that the schemas have.
VERSIONS = ("1.30", "1.34")


def said(text, word):
    """What a file says on the line that begins with this word."""
    (line,) = [line for line in text.splitlines() if line.startswith(word)]
    return line.removeprefix(word)


def known(environment):
    """The settings that environment variables make; asserts that all are known."""
    assert set(environment) <= {variable(name) for name in OPTIONS}
    return settings({}, {"ACKQ_BROKER_DATA": "/d", **environment}).options


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
def test_systemd_finds_no_fault(tmp_path):
    """O1: systemd verifies the unit, with the path of the command replaced by an existing one."""
    unit = tmp_path / "ackq-broker.service"
    unit.write_text(UNIT.replace("/opt/ackq/bin/ackq-broker", shutil.which("true")))
    done = subprocess.run(
        [SYSTEMD, "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if "ackq-broker" in line]
    assert (done.returncode, told) == (0, []), done.stderr


def test_the_unit_starts_a_broker():
    """O1, O3: the unit starts a broker with valid options, in directories that systemd makes."""
    command = shlex.split(said(UNIT, "ExecStart="))
    assert command[1:] == ["serve", "--config", "/etc/ackq/broker.toml"]
    found = settings({"config": str(DEPLOY / "broker.toml")}, {}).options
    made = {"/var/lib/ackq": "StateDirectory=ackq", "/run/ackq": "RuntimeDirectory=ackq"}
    paths = [found.data, found.backup_dir, *filter(None, (each.path for each in found.listen))]
    for path in paths:
        assert made[str(path.parent)] in UNIT
    assert "RestartPreventExitStatus=2" in UNIT
    assert "RestartForceExitStatus=SIGHUP" in UNIT
    assert "ExecReload=/bin/kill -HUP $MAINPID" in UNIT


def test_the_container_starts_a_broker():
    """O1: the container starts a broker with valid options, not as root, reachable by signals."""
    text = re.sub(r"\\\n\s*", " ", CONTAINER)
    lines = [line.split(maxsplit=1) for line in text.splitlines() if re.match(r"[A-Z]", line)]
    words = {"FROM", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "ENV", "STOPSIGNAL"}
    assert {word for word, _ in lines} == words | {"ENTRYPOINT", "CMD"}
    copied = [word for name, rest in lines if name == "COPY" for word in rest.split()[:-1]]
    assert [each for each in copied if each[0] not in "/-" and not (ROOT / each).exists()] == []
    last = dict(lines)
    environment = dict(pair.split("=", 1) for pair in last["ENV"].split())
    environment.pop("PATH")
    found = known(environment)
    (listen,) = found.listen
    assert last["EXPOSE"].split() == [str(listen.port), str(found.http.port)]
    assert str(found.data).startswith(last["VOLUME"] + "/")
    secrets = [str(path) for path in (found.users, found.tls_cert, found.tls_key)]
    assert secrets == [f"/etc/ackq/{name}" for name in ("users.toml", "tls.crt", "tls.key")]
    mounts = OBJECTS[1]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "secret", "mountPath": "/etc/ackq", "readOnly": True} in mounts
    assert (last["ENTRYPOINT"], last["CMD"]) == ('["ackq-broker"]', '["serve"]')
    assert last["USER"] != "0"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("found", OBJECTS, ids=lambda found: found["kind"])
def test_kubernetes_knows_every_field(found, version):
    """O1: the Kubernetes objects are valid by its own schemas, without unknown fields."""
    kubernetes_validate.validate(found, version, strict=True)


def test_kubernetes_starts_a_broker():
    """O1, M1, P8: names, ports, probes and sizes of the Kubernetes objects match the container."""
    service, workload = OBJECTS
    spec = workload["spec"]
    pod = spec["template"]["spec"]
    (broker,) = pod["containers"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert (spec["serviceName"], spec["replicas"]) == (service["metadata"]["name"], 1)
    ports = {each["name"]: each["containerPort"] for each in broker["ports"]}
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    assert " ".join(map(str, ports.values())) in said(CONTAINER, "EXPOSE ")
    probes = [broker[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert {(each["port"], each["scheme"]) for each in probes} == {("http", "HTTPS")}
    assert [each["path"] for each in probes] == ["/readyz", "/readyz", "/livez"]
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    assert {each["name"] for each in broker["volumeMounts"]} == volumes
    assert str(pod["securityContext"]["runAsUser"]) == said(CONTAINER, "USER ")
    found = known({each["name"]: each["value"] for each in broker["env"]})
    (claim,) = spec["volumeClaimTemplates"]
    assert size(claim["spec"]["resources"]["requests"]["storage"]) > 10 * reserve(found)
    assert size(broker["resources"]["limits"]["memory"]) // 2 >= limits.MIN_MEMORY_BYTES
    assert isinstance(found, ServeOptions)
