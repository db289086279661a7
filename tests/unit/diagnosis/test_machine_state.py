"""Q9: findings on the machine: each fault with its remedy, and no others."""

from dataclasses import replace

import pytest

from ackq.diagnosis.finding import Severity, broken
from ackq.diagnosis.installation_facts import JavaFacts, MachineFacts, PythonFacts
from ackq.diagnosis.machine_state import check_machine

SOUND = MachineFacts(
    python=PythonFacts(path="/venv/bin/python", version="3.11.7"),
    worker=PythonFacts("PYSPARK_PYTHON", "python3", "/usr/bin/python3", "3.11.2"),
    java=JavaFacts(program="/usr/bin/java", version="17.0.15"),
    packages={"pyspark": "4.2.0", "delta-spark": "4.4.0", "pyarrow": "18.0.0"},
)


def worst(facts):
    """The findings that are not OK, by code."""
    return {each.code: each for each in check_machine(facts) if each.severity is not Severity.OK}


def with_packages(**packages):
    names = {name.replace("_", "-"): version for name, version in packages.items()}
    return replace(SOUND, packages={**SOUND.packages, **names})


def with_java(**fields):
    return replace(SOUND, java=JavaFacts(**{"program": "/j", **fields}))


def with_worker(**fields):
    return replace(SOUND, worker=replace(SOUND.worker, **fields))


OLD = replace(with_worker(version="3.10.2"), python=PythonFacts(path="/p", version="3.10.2"))
NOWHERE = replace(SOUND, worker=PythonFacts("PYSPARK_PYTHON", "nopython"))
ARROW = replace(SOUND, environment={"ARROW_PRE_0_15_IPC_FORMAT": "1"})


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        (OLD, "python-old", "3.11 or newer"),
        (with_packages(pyspark="4.0.0"), "pyspark-version", "made for 4.0.1 to 4.3"),
        (with_packages(delta_spark="4.4.1"), "delta-version", "4.4.0 is the one"),
        (with_packages(pyspark="4.3.0"), "delta-version", "no jars for Spark 4.3 yet"),
        (with_packages(pyarrow="17.0.0"), "pyarrow", "18 or newer"),
        (replace(SOUND, java=JavaFacts()), "java-missing", "no java is in PATH"),
        (replace(SOUND, java=JavaFacts(home="/none")), "java-home", "no bin/java"),
        (with_java(version="1.8.0_392"), "java-old", "Spark 4 needs 17"),
        (with_java(error="no"), "java-broken", "no."),
        (NOWHERE, "worker-python-missing", "is nopython, and there is no such program."),
        (with_worker(version="3.12.1"), "worker-python-version", "workers of another version"),
        (with_worker(missing=("grpc",)), "worker-python-packages", "cannot import grpc"),
        (with_worker(error="exit status 3"), "worker-python-broken", "exit status 3"),
        (ARROW, "arrow-old-format", "does not read"),
    ],
)
def test_what_is_broken(facts, code, words):
    """One fault gives one problem with its remedy."""
    found = worst(facts)
    assert list(found) == [code]
    assert found[code].severity is Severity.PROBLEM
    assert words in found[code].sentence
    assert found[code].remedy


@pytest.mark.parametrize("version", ["4.0.1", "4.0.5", "4.1.4", "4.2.0"])
def test_every_pyspark_with_a_delta(version):
    """Delta 4.4.0 has jars for each of these versions, so all findings are OK."""
    assert worst(with_packages(pyspark=version)) == {}


def test_the_newest_pyspark_without_delta():
    """PySpark 4.3 is accepted, with a line that Delta has no jars for it."""
    packages = {"pyspark": "4.3.0", "pyarrow": "18.0.0"}
    findings = check_machine(replace(SOUND, packages=packages))
    assert not broken(findings)
    (said,) = (each.sentence for each in findings if each.code == "pyspark")
    assert said == "PySpark 4.3.0. Delta has no jars for Spark 4.3 yet."


@pytest.mark.parametrize(
    ("packages", "range_"),
    [({}, "<4.4"), ({"delta-spark": "4.4.0"}, "<4.3")],
)
def test_the_remedy_for_an_old_pyspark_leaves_delta_working(packages, range_):
    """The suggested version range is that of the package's extras."""
    facts = replace(SOUND, packages={"pyspark": "3.5.1", "pyarrow": "18.0.0", **packages})
    assert worst(facts)["pyspark-version"].remedy == f"pip install 'pyspark>=4.0.1,{range_}'"


def test_an_interpreter_that_only_configure_names():
    """A problem: without `configure` a new user's first query fails."""
    unnamed = PythonFacts("", "python3", "/usr/bin/python3", "3.12.0")
    found = worst(replace(SOUND, worker=unnamed))["worker-python-version"]
    assert found.severity is Severity.PROBLEM
    assert "Without `ackq.spark.configure`, a query fails" in found.sentence


def test_what_may_break():
    """Settings and versions that may break are warnings, as the jobs work with them."""
    reduced = JavaFacts(program="/j", version="25", incubator=False)
    assert worst(replace(SOUND, java=reduced))["java-reduced"].severity is Severity.WARNING
    rows = {"spark.sql.execution.arrow.maxRecordsPerBatch": "-1"}
    assert worst(replace(SOUND, spark_settings=rows))["arrow-batches"].severity is Severity.WARNING
    assert worst(with_packages(pyspark="4.2.1"))["delta-version"].severity is Severity.WARNING


def test_a_plain_client_needs_no_java():
    """Without PySpark there is no finding on Java or Spark's workers."""
    packages = {"pyarrow": "18.0.0"}
    found = worst(replace(SOUND, packages=packages, java=JavaFacts(), worker=PythonFacts()))
    assert {code: each.severity for code, each in found.items()} == {
        "pyspark-missing": Severity.NOTE
    }
