"""The rules are defined in proto/README.md, and citations in the tree agree with them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import rules, sizes
from tests.optional import COMPILED, is_missing

ROOT = rules.ROOT

# Files that are not read for citations, with the reason.
NOT_READ = {
    "connector/ackq/v1/": "generated: the comments that it comes from are in proto/",
    "tests/structure/test_rules.py": "its texts are made up",
}


def tree():
    """The project's text files, by path: committed ones, and new ones that are not ignored."""
    git = shutil.which("git")
    if git is not None and (ROOT / ".git").exists():
        command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        files = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        hidden = ("__pycache__", "venv", "build")
        names = [str(f) for f in files if not any(p[0] == "." or p in hidden for p in f.parts)]
    for name in sorted(names):
        if (ROOT / name).is_file() and not name.startswith(tuple(NOT_READ)):
            content = (ROOT / name).read_bytes()
            if b"\0" not in content:  # a data file
                yield name, content.decode(errors="replace")


def undefined(texts, defined):
    """The citations of rules that are not defined, as (path, rule)."""
    return [(name, rule) for name, text in texts for rule in sorted(rules.cited(text) - defined)]


def untested(texts, defined):
    """The rules that no test cites by its own name or docstring, one by one; long tests aside."""
    named = {
        rule
        for name, text in texts
        if Path(name).name.startswith("test_")
        for test, cites in rules.of_tests(text)
        if not sizes.is_long(f"{name}::{test}")
        for rule in cites
    }
    return sorted(defined - named)


def flaws(text):
    """The flaws in the definitions of a text: anchors, headings, gaps."""
    found = []
    definitions = rules.definitions(text)
    for each in definitions:
        if each.anchor != each.rule.lower():
            found.append(f"{each.rule} has the anchor '{each.anchor}', not '{each.rule.lower()}'")
        if each.heading != rules.HEADINGS[each.rule[0]]:
            found.append(f"{each.rule} is under '{each.heading}'")
    anchors = re.findall(r'<a id="([^"]*)"', text)
    found += [
        f"the anchor '{a}' stands twice" for a in sorted(set(anchors)) if anchors.count(a) > 1
    ]
    for letter in rules.HEADINGS:
        numbers = [int(each.rule[1:]) for each in definitions if each.rule[0] == letter]
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            found.append(f"the numbers of {letter} are {numbers}")
    return found


def dead_links(texts, text):
    """The links to anchors that the text with the rules does not have, as (path, anchor)."""
    anchors = set(re.findall(r'<a id="([^"]*)"', text))
    anchors |= {heading.lower() for heading in re.findall(r"^## (\w+)$", text, re.MULTILINE)}
    links = [(rules.DEFINITIONS, link) for link in re.findall(r"\]\(#([^)]*)\)", text)]
    for name, other in texts:
        found = re.findall(rf"{re.escape(rules.DEFINITIONS)}#([^)\s]*)\)", other)
        links += [(name, link) for link in found]
    return [(name, link) for name, link in links if link not in anchors]


def test_every_rule_that_is_cited_is_defined():
    """A rule number cited in code, protocol, tests, jobs or READMEs leads to a definition."""
    assert undefined(tree(), set(rules.defined())) == []


def test_every_rule_is_tested():
    """Every rule is cited by a test that is not long."""
    assert untested(tree(), set(rules.defined())) == []


def test_every_long_test_is_there():
    """A test that `tests.sizes` names exists, with its parameter."""
    found = {
        line.strip()
        for servers in ((), ("--servers",))
        for line in collected(ROOT, "--collect-only", "-q", "--long", *servers, *sizes.LONG)[
            2
        ].splitlines()
    }
    found |= {nodeid.partition("[")[0] for nodeid in found}
    named = {
        f"{file}::{name}"
        for file, names in sizes.LONG.items()
        if not (is_missing(COMPILED) and f'needs("{COMPILED}"' in (ROOT / file).read_text())
        for name in names
    }
    assert named - found == set()


def test_definitions_are_whole():
    """Each rule has its anchor, once, under its heading; no number is left out."""
    assert flaws((ROOT / rules.DEFINITIONS).read_text(encoding="utf-8")) == []


def test_links_to_rules_lead_somewhere():
    """The links of the contents and of other READMEs lead to existing anchors."""
    text = (ROOT / rules.DEFINITIONS).read_text(encoding="utf-8")
    assert dead_links(tree(), text) == []


# --- the checks can fail ---

MADE_UP = "\n\n".join(
    [
        "# Rules",
        *(f'## {heading}\n\n<a id="{x.lower()}1"></a>**{x}1 Title.** Text of {x}1.'
          for x, heading in rules.HEADINGS.items()),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I1, (S5) and K12's", {"I1", "S5", "K12"}),
        ("[P3](proto/README.md#p3) S4/S5; Q8: `C11`", {"P3", "S4", "S5", "Q8", "C11"}),
        ("P2-P4", {"P2", "P3", "P4"}),
        ("P2 - P4, S1–S3", {"P2", "P3", "P4", "S1", "S2", "S3"}),  # noqa: RUF001 - that dash
        ("the rules P2 to\n    P4", {"P2", "P3", "P4"}),
        ("C1-C2-C3", {"C1", "C2", "C3"}),
        ("P2-C4, S9-S3", {"P2", "C4", "S9", "S3"}),
        ("from S5 to a hole", {"S5"}),
        ("S603 K8s P2P xS5 S5_x s5 D1 C++ I/O 1C2 PS5 Q", set()),
        ("P99", {"P99"}),
    ],
)
def test_citations(text, expected):
    """A citation is a word of its own, or a range with both ends in full."""
    assert rules.cited(text) == expected


def test_an_undefined_rule_is_found():
    """An undefined rule is found by path and number, also between the ends of a range."""
    texts = [("a.py", "# S1, S2 (K1)"), ("b.md", "P1-P3"), ("c.proto", "nothing")]
    defined = {"S1", "K1", "P1", "P3"}
    assert undefined(texts, defined) == [("a.py", "S2"), ("b.md", "P2")]


def test_an_untested_rule_is_found():
    """A rule that only a helper, a comment, a module's docstring or a range cites is not tested."""
    module = '''"""S1."""
def test_first():
    """S2: it is so."""
    # S3
def helper():
    """S4."""
def test_s5_is_so():
    pass
class TestAll:
    def test_more(self):
        """S6-S8, S9."""
'''
    texts = [("tests/test_a.py", module), ("tests/helper.py", module.replace("S2", "S1"))]
    defined = {f"S{number}" for number in range(1, 11)}
    assert untested(texts, defined) == ["S1", "S10", "S3", "S4", "S6", "S7", "S8"]


@pytest.mark.parametrize(
    ("before", "after", "flaw"),
    [
        ('<a id="s1"></a>', "", "S1 has the anchor '', not 's1'"),
        ('<a id="s1">', '<a id="s2">', "S1 has the anchor 's2', not 's1'"),
        ('<a id="s1"></a>**S1', '<a id="s1"></a>x\n\n<a id="s1"></a>**S1', "'s1' stands twice"),
        ("## Sessions\n\n", "", "S1 is under 'Queues'"),
        ('"s1"></a>**S1', '"s2"></a>**S2', "the numbers of S are [2]"),
        ("Text of S1.", 'X.\n\n<a id="s3"></a>**S3 T.** X.', "the numbers of S are [1, 3]"),
        ("Text of S1.", 'X.\n\n<a id="s1"></a>**S1 T.** X.', "the numbers of S are [1, 1]"),
        ("Text of L1.", 'X.\n\n<a id="l1"></a>**L1 T.** X.', "the numbers of L are [1, 1]"),
        ("**S1 Title.**", "S1", "the numbers of S are []"),
    ],
)
def test_flaws_of_definitions(before, after, flaw):
    """A missing, wrong or doubled anchor, a wrong heading, a gap, a rule twice or not at all."""
    assert before in MADE_UP
    assert flaws(MADE_UP) == []
    assert flaw in "; ".join(flaws(MADE_UP.replace(before, after)))


def test_a_dead_link_is_found():
    """A dead link is found, in the text with the rules and in links to it."""
    texts = [("README.md", "[S1](proto/README.md#s1) [S2](proto/README.md#s2)")]
    links = MADE_UP + "\n[S1](#s1) [Sessions](#sessions) [x](#x)"
    assert dead_links(texts, links) == [(rules.DEFINITIONS, "x"), ("README.md", "s2")]


# --- pytest --rule ---

LETTER = {"S1": "a", "S2": "b", "S3": "c", "K1": "d"}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (("test_x", "S1: so.", "S2", "S3"), {"S1"}),
        (("test_x", None, "S2, K1", "S3"), {"S2", "K1"}),
        (("test_x", "So.", None, "S3"), {"S3"}),
        (("test_x", None, None, None), set()),
        (("test_s2_holds", "K1", "S1"), {"S2", "K1"}),
        (("test_s2", None, "S1"), {"S2"}),
        (("test_k1_and_s3", None), {"K1", "S3"}),
        (("test_p50_of_ks1s", None), set()),
        (("test_x", "S1-S2"), {"S1", "S2"}),
        (("test_x", "S1-S3", None, "K1"), {"K1"}),
        (("test_x", "S1-S3, S2", None, "K1"), {"S2"}),
    ],
)
def test_which_rules_a_test_carries(places, expected):
    """A test's own rules, else its class's or module's; a range of a whole letter is ignored."""
    name, *docstrings = places
    assert rules.carried(name, *docstrings, rules=LETTER) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["S1"], ["S1"]),
        (["s1"], ["S1"]),
        (["S2, k1", "S2"], ["S2", "K1"]),
        (["s1-s3"], ["S1", "S2", "S3"]),
        (["s1 to s2"], ["S1", "S2"]),
    ],
)
def test_rules_asked_for(given, expected):
    """`--rule` takes rules in any case, several times, in lists and ranges."""
    assert rules.wanted(given, LETTER) == expected


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("S9", "There is no rule 'S9'. The nearest is S"),
        ("K12", "The nearest is K1 (d)"),
        ("S2-S4", "There is no rule 'S4'"),
        ("S3-S1", "There is no rule 'S3-S1'"),
        ("X1", "There is no rule 'X1'. All of them are in proto/README.md: P Publishing"),
        ("S", "There is no rule 'S'"),
        ("", "There is no rule ''"),
    ],
)
def test_a_rule_that_is_none(given, part):
    """An unknown rule is reported, with the nearest one and where all are defined."""
    with pytest.raises(ValueError, match=re.escape(part)):
        rules.wanted([given], LETTER)


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [("S1, K1: it is so.", ["S1", "K1"]), ("It is so: S1", []), ("S1", []), (None, [])],
)
def test_the_rules_that_a_docstring_opens_with(docstring, expected):
    """The rules that open a scenario's docstring are found."""
    assert rules.opening(docstring) == expected


def collected(folder, *arguments):
    """The collection of pytest in a project: the status, the names of the tests, the output."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    # Options of the run around it would change the output.
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    names = re.findall(r"::(\w+(?:\[.*\])?)(?: |$)", done.stdout, re.MULTILINE)
    return done.returncode, sorted(set(names)), done.stdout + done.stderr


PROJECT = {
    "tests/unit/test_a.py": '''"""S3: the module."""
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_own(n):
    """S1: so."""

def test_range():
    """S1-S2."""

def test_bare():
    pass

class TestGroup:
    """S2: the class."""

    def test_of_the_class(self):
        pass
''',
    "tests/test_b.py": '''def test_everything():
    """S1-S3, K1."""

def test_s2_in_the_name():
    pass
''',
    "tests/servers/test_c.py": """import pytest

@pytest.fixture(params=["ackq", "rabbitmq"])
def bench(request):
    pass

@pytest.fixture
def browser():
    pass

@pytest.mark.servers
def test_marked():
    pass

def test_page(browser):
    pass

def test_either(bench):
    pass
""",
    "tests/long/test_d.py": """import pytest
from tests.sizes import sized

def test_whole():
    pass

@pytest.mark.parametrize("part", "ab")
def test_part(part):
    pass

@pytest.mark.parametrize("number", range(sized(1, 2)))
def test_number(number):
    pass
""",
}
LONG = '\nLONG = {"tests/long/test_d.py": ("test_whole", "test_part[b]")}\n'
SHORT = ["test_number[0]", "test_part[a]"]


@pytest.fixture
def project(tmp_path):
    """A project of a few test modules with this one's conftest.py and configuration."""
    parts = (
        "conftest",
        "rules",
        "class_archive",
        "ports",
        "prefork",
        "schedule",
        "servers",
        "sizes",
    )
    for name in ("pyproject.toml", *(f"tests/{part}.py" for part in parts)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    more = [f'<a id="s{n}"></a>**S{n} Title {n}.** Text.' for n in (2, 3)]
    text = MADE_UP.replace("Text of S1.", "\n\n".join(["Text.", *more]))
    sizes_here = (ROOT / "tests/sizes.py").read_text() + LONG
    for name, content in {**PROJECT, rules.DEFINITIONS: text, "tests/sizes.py": sizes_here}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rule", "S1"], ["test_own[1]", "test_own[2]", "test_range"]),
        (["tests/unit", "--rule", "S2"], ["test_of_the_class", "test_range"]),
        (["--rule", "S3", "--rule", "K1"], ["test_bare", "test_everything"]),
        (["tests/servers"], ["test_either[ackq]"]),
        (["tests/servers", "--servers"], ["test_either[rabbitmq]", "test_marked", "test_page"]),
        (["tests/long"], SHORT),
        (
            ["tests/long", "--long"],
            sorted([*SHORT, "test_number[1]", "test_part[b]", "test_whole"]),
        ),
    ],
)
def test_collection(project, arguments, expected):
    """Tests are chosen by `--rule`, with a path or without; by `--servers`; and by `--long`.

    `--servers` runs tests with the mark, a server fixture or its parameter, else all others run;
    `--long` also runs those that `tests.sizes` names, and takes the numbers of long runs.
    """
    status, names, said = collected(project, "--collect-only", "-q", *arguments)
    assert (status, names) == (0, expected), said


def test_rules_with_workers(project):
    """The workers of xdist deselect the same tests as the command."""
    status, names, said = collected(project, "-n", "2", "-v", "--rule", "S2")
    assert (status, names) == (0, ["test_of_the_class", "test_range", "test_s2_in_the_name"]), said
    assert "3 passed" in said
    assert "rule S2: Title 2" in said


def test_an_unknown_rule_is_a_usage_error(project):
    """An unknown rule is a usage error in a line, before anything is collected."""
    status, _, said = collected(project, "--rule", "S4")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --rule: There is no rule 'S4'. The nearest is S" in said
