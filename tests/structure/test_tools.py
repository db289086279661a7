"""The repository keeps its own rules.

Style, types, layers, protocol, generated code, README commands.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def run(*command, cwd=ROOT):
    """Runs a tool of this environment; its output is the assertion message."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ruff_check():
    """Every lint rule that is not ignored with a reason holds."""
    run("ruff", "check", ".")


def test_ruff_format():
    """The formatter finds nothing to change."""
    run("ruff", "format", "--check", ".")


def test_mypy_strict():
    """The product's packages pass mypy in strict mode."""
    run("mypy")


def test_types_of_the_public_api():
    """mypy and pyright accept a user's program, and find an error in each line marked as wrong."""
    run("mypy", "--strict", "tests/typing/api.py")
    run("basedpyright", "--project", "tests/typing", "--pythonpath", sys.executable)


def test_protocol_lint():
    """The protocol keeps buf's standard rules, including comments on everything."""
    run("buf", "lint", cwd=ROOT / "proto")


def test_generated_code_is_current(tmp_path):
    """The committed classes are the output of the oldest supported generators for proto/."""
    files = sorted(str(path) for path in (ROOT / "proto/ackq/v1").glob("*.proto"))
    messages = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    run("protoc", f"-I{ROOT / 'proto'}", *messages, *files)
    stubs = f"--grpc_python_out={tmp_path}"
    run("python", "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", stubs, *files)
    made = {path.name: path.read_text() for path in (tmp_path / "ackq/v1").iterdir()}
    here = {
        path.name: path.read_text()
        for path in (ROOT / "connector/ackq/v1").iterdir()
        if "_pb2" in path.name
    }
    assert made == here
    info = run("python", "proto/info_classes.py")
    assert info == (ROOT / "connector/ackq/v1/info.py").read_text()


def test_ci_runs_the_readme_test_command():
    """CI runs the test command that the README gives."""
    readme = (ROOT / "README.md").read_text()
    command = re.search(r"^python3 -m venv .* -m pytest -n 3$", readme, re.MULTILINE)
    assert command is not None
    assert command.group() in (ROOT / ".ci/run").read_text().splitlines()


def test_pyspark_ackq_imports_in_milliseconds():
    """K9: Spark imports it in every application: no grpc, pyarrow, protobuf, numpy or pandas."""
    code = (
        "import sys, time, pyspark.sql.datasource; before = set(sys.modules);"
        "t = time.process_time(); import pyspark_ackq; pyspark_ackq.DefaultSource.name();"
        "print(time.process_time() - t); heavy = {'grpc', 'pyarrow', 'google', 'numpy', 'pandas'};"
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} & heavy))"
    )
    seconds, heavy = run("python", "-c", code).splitlines()
    assert heavy == "[]"
    assert float(seconds) < 1.0


@pytest.mark.parametrize("job", sorted(p.name for p in (ROOT / "jobs").glob("*_*.py")))
def test_job_help_needs_no_spark(job):
    """`--help` of every job answers without Spark."""
    started = time.monotonic()
    assert "usage" in run("python", f"jobs/{job}", "--help").lower()
    assert time.monotonic() - started < 30


def test_no_path_or_name_of_a_machine():
    """No file of the tree contains a path or name of this machine."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        files = [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]
    else:
        listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        files = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    home = str(Path.home()).encode() + b"/"
    named = [p for p in files if p.is_file() and home in p.read_bytes()]
    assert named == []
