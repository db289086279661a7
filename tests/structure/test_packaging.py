"""The wheel: its content, its requirements, and the errors where an extra is missing."""

import configparser
import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ackq import __version__, extras

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "connector/ackq",
    "connector/ackq_link",
    "connector/pyspark_ackq",
    "broker_stub/ackq_broker",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built as `pip install .` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), "."]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def requirements(wheel, extra):
    """The names of the packages that an extra requires; None: those of the package alone."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    found = set()
    for line in email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist"):
        requirement, _, marker = line.partition(";")
        of = re.search(r"extra == '(\w+)'", marker)
        if (of[1] if of else None) == extra:
            found.add(re.match(r"[\w-]+", requirement)[0])
    return found


def test_a_client_pulls_no_spark(wheel):
    """A program that publishes and consumes needs only gRPC, protobuf and Arrow."""
    assert requirements(wheel, None) == {"grpcio", "protobuf", "pyarrow"}
    assert requirements(wheel, "spark") == {"pyspark"}


def test_the_wheel_is_typed_and_has_the_protocol(wheel):
    """The wheel has `py.typed` for type checkers, and the protocol for other languages."""
    names = set(wheel.namelist())
    assert {
        f"{package}/py.typed" for package in ("ackq", "ackq_link", "ackq_broker", "pyspark_ackq")
    } <= names
    protocol = {path.name for path in (ROOT / "proto/ackq/v1").glob("*.proto")}
    shared = [name for name in names if "/data/share/ackq/proto/ackq/v1/" in name]
    assert {name.rpartition("/")[2] for name in shared} == protocol != set()
    assert not {name for name in names if name.split("/")[0] in ("tests", "jobs", "proto")}


def test_the_wheel_has_each_file_of_the_packages(wheel):
    """The wheel has the dashboard's files, and the executable program of Spark's workers."""
    files = {
        path.relative_to((ROOT / package).parent).as_posix(): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {info.filename: info for info in wheel.infolist()}
    assert {name for name in held if ".dist-info/" not in name and ".data/" not in name} == set(
        files
    )
    assert "ackq_broker/http/static/dashboard.html" in held
    for name, path in files.items():
        assert bool(held[name].external_attr >> 16 & 0o100) == bool(path.stat().st_mode & 0o100)


def test_the_wheel_has_the_commands(wheel):
    """The wheel has `ackq` and `ackq-broker`, by names that can be imported."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    entries = configparser.ConfigParser()
    entries.read_string(wheel.read(name).decode())
    assert dict(entries["console_scripts"]) == {
        "ackq": "ackq.cli:main",
        "ackq-broker": "ackq_broker.cli:main",
    }


def test_the_readme_names_the_wheel(wheel):
    """Both READMEs install the file that is built."""
    for readme in ("README.md", "connector/README.md"):
        text = (ROOT / readme).read_text()
        assert "pip wheel --no-deps -w dist ." in text
        assert f"pip install 'dist/{Path(wheel.filename).name}[" in text


def test_the_changelog_has_this_version(wheel):
    """The newest release in the changelog, with its date, is the version of package and wheel."""
    text = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", text, re.MULTILINE)[1]
    assert newest == __version__ == Path(wheel.filename).name.split("-")[1]


def test_the_lowest_protobuf_is_that_of_the_generated_code(wheel):
    """Protobuf refuses code that was generated for a newer protobuf."""
    generated = {
        re.search(r"Protobuf Python Version: ([\d.]+)", wheel.read(name).decode())[1]
        for name in wheel.namelist()
        if name.startswith("ackq/v1/") and name.endswith("_pb2.py")
    }
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    asked = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist")
    (protobuf,) = (each for each in asked if each.startswith("protobuf"))
    assert protobuf == f"protobuf<8,>={generated.pop()}"
    assert not generated


@pytest.mark.parametrize("version", ["3.20.3", "4.25.8", "5.28.3"])
def test_an_old_protobuf_is_named(version):
    """Where ackq is a zip, without pip, the error's last line names the required protobuf."""
    program = f"import google.protobuf as p; p.__version__ = {version!r}; import ackq.client.admin"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: ackq needs protobuf 5.29.3 or newer, and finds {version}: "
        "pip install 'protobuf>=5.29.3,<8'"
    )


@pytest.mark.parametrize(
    ("missing", "use", "line"),
    [
        (
            "click",
            "from ackq.cli import main; main()",
            "The command ackq needs 'click': run  pip install {cli}",
        ),
        (
            "rich",
            # Help does without it: a publisher's progress bar on a terminal needs it.
            (
                "import click, sys; sys.argv[1:] = ['bar'];"
                "from ackq.cli import commands, main, progress;"
                "draw = lambda: progress.bar(None, int).__enter__();"
                "commands.ackq.add_command(click.Command('bar', callback=draw)); main()"
            ),
            "The command ackq needs 'rich': run  pip install {cli}",
        ),
        (
            "msgspec",
            "from ackq_broker.cli import main; main()",
            "The command ackq-broker needs 'msgspec': run  pip install {broker}",
        ),
        (
            "pyspark",
            "from ackq.spark import configure",
            "ackq.spark.configure needs 'pyspark': run  pip install {spark}",
        ),
    ],
)
def test_a_missing_extra_is_named(missing, use, line):
    """The error's last line names the extra to install."""
    program = f"import sys; sys.modules[{missing!r}] = None; {use}"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 1
    installs = {extra: extras.requirement(extra) for extra in ("cli", "broker", "spark")}
    told = result.stderr.splitlines()[-1].removeprefix("ModuleNotFoundError: ")
    assert told == line.format(**installs)
