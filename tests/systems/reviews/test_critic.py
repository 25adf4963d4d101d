"""What the rules find in a diff, how a diff is read, and the mail that comes of it (R-09, R-11)."""

from __future__ import annotations

import json

import pytest

from redrive.systems.reviews.changelist import Changelist
from redrive.systems.reviews.critic import RULES, RuleCritic
from redrive.systems.reviews.diff import FileDiff, numbered, parse_diff
from redrive.systems.reviews.findings import AnswerInvalid, Finding, read_answer
from redrive.systems.reviews.mail import notification, summary


def _diff(path: str, *added: str) -> str:
    lines = "".join(f"+{line}\n" for line in added)
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -0,0 +1,{len(added)} @@\n{lines}"


async def _found(path: str, *added: str) -> list[tuple[int, str]]:
    findings = await RuleCritic().review(Changelist(base="a", head="b", diff=_diff(path, *added)))
    return [(one.line, one.rule) for one in findings]


# For each rule a line that it finds, and one beside it that it does not.
CASES = [
    ("a.txt", "<<<<<<< HEAD", "<<<<<< six", "conflict-marker"),
    ("a.py", 'api_key = "abcdefgh12345"', 'api_key = os.environ["KEY"]', "hard-coded-secret"),
    ("a.py", "    breakpoint()", "    breakpoints(1)", "debugger"),
    ("a.js", "  debugger;", "  debuggers;", "debugger"),
    ("a.py", "    except:", "    except ValueError:", "bare-except"),
    ("a.py", "def f(a, b=[]):", "def f(a, b=()):", "mutable-default"),
    ("a.py", "x = eval(text)", "x = literal_eval(text)", "eval"),
    ("a.py", "get(url, verify=False)", "get(url, verify=True)", "unverified-tls"),
    ("a.py", "run(command, shell=True)", "run(command, shell=False)", "shell"),
    ("a.py", 'conn.execute(f"SELECT {x}")', 'conn.execute("SELECT %s", [x])', "sql-from-strings"),
    ("a.py", "@pytest.mark.skip", "@pytest.mark.skipif(x)", "disabled-test"),
    ("a.ts", "it.only('x', () => {})", "it('x', () => {})", "focused-test"),
    ("a.py", "    print(1)", "    pprint(1)", "print"),
    ("a.js", "console.log(1)", "console.error(1)", "console-log"),
    ("a.txt", "TODO: later", "TODOS are a word", "open-question"),
    ("a.py", "x = 1 ", "x = 1", "trailing-space"),
]


@pytest.mark.req("R-09")
@pytest.mark.parametrize(("path", "wrong", "right", "rule"), CASES, ids=[f"{case[3]} {case[0]}" for case in CASES])
async def test_a_rule_finds_what_it_is_for_and_not_its_neighbour(path: str, wrong: str, right: str, rule: str) -> None:
    assert (2, rule) in await _found(path, "fine", wrong)
    assert rule not in [name for _, name in await _found(path, "fine", right)]


def test_every_rule_has_a_case() -> None:
    assert {case[3] for case in CASES} == {rule.name for rule in RULES}


@pytest.mark.req("R-09")
async def test_a_line_that_looks_like_a_secret_is_not_repeated_by_any_finding() -> None:
    text = 'password = "hunter2-hunter2"  # TODO ' + "x" * 200
    findings = await RuleCritic().review(Changelist(base="a", head="b", diff=_diff("a.py", text)))
    assert {one.rule for one in findings} >= {"hard-coded-secret", "open-question", "long-line"}
    assert "hunter2" not in json.dumps([one.as_json() for one in findings])


@pytest.mark.req("R-09")
def test_a_model_is_told_the_number_of_each_line_of_the_new_file() -> None:
    """A model that has to count is often wrong, and a finding about another line is refused."""
    text = (
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n"
        "@@ -8,3 +8,4 @@\n eight\n-nine\n+NINE\n+@@ -1 +1 @@\n ten\n"
        "diff --git a/b.txt b/b.txt\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-b\n+B\n\\ No newline at end of file\n"
    )
    said = numbered(text)
    assert [line for line in said.split("\n") if line[:6].strip().isdecimal() or line.startswith("       ")] == [
        "     8  eight",
        "       -nine",
        "     9 +NINE",
        "    10 +@@ -1 +1 @@",
        "    11  ten",
        "       -b",
        "     1 +B",
    ]
    for file in parse_diff(text):
        assert all(f"{one.number:>6} +{one.text}" in said for one in file.added)


@pytest.mark.req("R-09")
def test_an_answer_of_a_model_may_stand_in_a_fence() -> None:
    finding = {"file": "a.py", "line": 1, "severity": "note", "rule": "r", "message": "Why?"}
    files = parse_diff(_diff("a.py", "a = 1"))
    plain = json.dumps({"findings": [finding]}, indent=1)
    for text in (f"```json\n{plain}\n```", f"```\n{plain}\n```\n", plain):
        assert [one.message for one in read_answer(text, files)] == ["Why?"]
    for text in (f"Here it is:\n```json\n{plain}\n```", f"```json\n{plain}"):
        with pytest.raises(AnswerInvalid):
            read_answer(text, files)


@pytest.mark.req("R-09", "R-04")
def test_a_secret_that_a_model_has_found_is_not_repeated_by_its_finding() -> None:
    key = "AKIA" + "0123456789ABCDEF"
    files = parse_diff(_diff("a.py", 'password = "hunter2-hunter2"', key, "plain = 1"))
    given = [
        {"file": "a.py", "line": line, "severity": "error", "rule": "secret", "message": f"Do not write {text} here."}
        for line, text in ((1, "hunter2-hunter2"), (2, key), (3, "plain"))
    ]
    found = read_answer(json.dumps({"findings": given}), files)
    assert [(one.message, one.excerpt) for one in found] == [
        ("Do not write […] here.", ""),
        ("Do not write […] here.", ""),
        ("Do not write plain here.", "plain = 1"),
    ]


def test_lines_are_numbered_as_in_the_new_file_and_a_line_that_looks_like_a_header_is_a_line() -> None:
    text = (
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,4 @@\n one\n--- two\n+++ b/evil\n+2\n three\n"
        "@@ -10 +11,2 @@ def f():\n ten\n+eleven\n\\ No newline at end of file\n"
        "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/p.bin b/p.bin\nBinary files a/p.bin and b/p.bin differ\n"
    )
    first, gone, binary = parse_diff(text)
    assert [(one.number, one.text) for one in first.added] == [(2, "++ b/evil"), (3, "2"), (12, "eleven")]
    assert (first.path, gone.path, list(gone.added), binary.path) == ("a.txt", "gone.txt", [], "p.bin")


FILES = parse_diff(_diff("a.py", "x = 1", "y = 2"))
GOOD = {"file": "a.py", "line": 2, "severity": "error", "rule": "r", "message": "m"}


@pytest.mark.req("R-09", "R-02")
@pytest.mark.parametrize(
    "wrong",
    [
        {"file": "b.py"},
        {"line": 3},
        {"line": True},
        {"line": "2"},
        {"severity": "fatal"},
        {"rule": ""},
        {"message": "m" * 501},
        {"message": None},
        {"file": None},
    ],
)
def test_a_finding_of_a_model_that_does_not_fit_the_diff_or_the_schema_is_refused(wrong: dict[str, object]) -> None:
    assert read_answer(json.dumps({"findings": [GOOD]}), FILES)[0].excerpt == "y = 2"
    with pytest.raises(AnswerInvalid):
        read_answer(json.dumps({"findings": [{**GOOD, **wrong}]}), FILES)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"findings": {}}', "[" * 100_000, json.dumps({"findings": [GOOD] * 101})]
)
def test_an_answer_that_is_no_list_of_findings_is_refused(text: str) -> None:
    with pytest.raises(AnswerInvalid):
        read_answer(text, FILES)


def _mail(*findings: Finding) -> dict[str, str]:
    return notification(
        changelist_id="shop-42",
        review_version=3,
        recipient="ada@example.org",
        repository="shop",
        base="1" * 40,
        head="2" * 40,
        critic="rules",
        findings=findings,
    )


@pytest.mark.req("R-11")
def test_a_mail_has_the_findings_by_file_with_their_lines_and_shows_code_as_text() -> None:
    finding = Finding(
        file="a.html", line=7, severity="error", rule="r", message="Bad.", excerpt="<script>alert(1)</script>"
    )
    mail = _mail(finding)
    assert mail == _mail(finding)
    assert mail["subject"] == "[review] shop-42 (version 3): 1 error"
    assert "a.html\n------\n  line 7: error (r): Bad.\n      <script>alert(1)</script>" in mail["text"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in mail["html"]
    assert "<script>" not in mail["html"]
    assert summary([]) == "nothing to complain about"
    assert FileDiff("a").text_of(1) == ""
