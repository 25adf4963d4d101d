"""Which test proves which requirement: `docs/traceability.md`, made from the `req` and `seed` marks in the tests.

    python -m tools.traceability --write

A test in tests/tidy fails when the page is not what the marks say, and when a delivered requirement has no test.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "traceability.md"
REQUIREMENTS = TESTS / "requirements.toml"
NAMED = TESTS / "seed_tests.toml"


def marks() -> dict[str, list[str]]:
    """Requirement id to the tests that carry its mark, sorted."""
    return _found("req")


def named_marks() -> dict[str, list[str]]:
    """`document: name` of a test that a document names, to the tests that carry its mark."""
    return _found("seed")


def named(which: Literal["tests", "planned"] = "tests") -> list[str]:
    """The tests that the documents name, as `document: name`. planned: of what is not delivered yet."""
    found = tomllib.loads(NAMED.read_text(encoding="utf-8"))
    return [f"{document}: {name}" for document, listed in found.items() for name in listed.get(which, ())]


@cache
def _found(mark: str) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for place, tree in _modules():
        for requirement, test in _marks_of(place, tree, mark):
            found.setdefault(requirement, set()).add(test)
    return {requirement: sorted(tests) for requirement, tests in found.items()}


@cache
def _modules() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(TESTS.parent).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(TESTS.rglob("test_*.py"))
    ]


def _marks_of(place: str, tree: ast.Module, mark: str) -> Iterator[tuple[str, str]]:
    whole_module = [r for node in tree.body if _is_pytestmark(node) for r in _requirements(node, mark)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own = [r for decorator in node.decorator_list for r in _requirements(decorator, mark)]
            if not node.name.lower().startswith("test"):
                own = []
            for requirement in own + (whole_module if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []):
                if node.name.lower().startswith("test"):
                    yield requirement, f"{place}::{node.name}"


def _is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
    )


def _requirements(node: ast.AST, mark: str) -> list[str]:
    """What every `mark(...)` call below a node says; several texts are one, with a colon between them."""
    calls = [
        [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == mark
    ]
    if mark == "seed":
        return [": ".join(map(str, texts)) for texts in calls]
    return [str(text) for texts in calls for text in texts]


class Requirement(TypedDict):
    """planned: not delivered yet, so no test is asked for."""

    text: str
    planned: NotRequired[bool]


def requirements() -> Mapping[str, Requirement]:
    """Id to the requirement."""
    found: Mapping[str, Requirement] = tomllib.loads(REQUIREMENTS.read_text(encoding="utf-8"))
    return found


def quoted() -> dict[str, list[str]]:
    """Requirement id to the sources and pages that quote it."""
    found: dict[str, list[str]] = {}
    for path in sorted(path for folder in ("src", "docs", "deploy", "examples") for path in (ROOT / folder).rglob("*")):
        if path.suffix in {".py", ".sql", ".md", ".html", ".yml"} and path != PAGE:
            for requirement in set(re.findall(r"\b[A-Z]-\d\d\b", path.read_text(encoding="utf-8"))):
                found.setdefault(requirement, []).append(path.relative_to(ROOT).as_posix())
    return found


def page() -> str:
    tests = marks()
    lines = [
        "# Traceability",
        "",
        "Made from the `req` marks of the tests by `python -m tools.traceability --write`; do not edit.",
        "Comments in the source name requirements by these ids.",
        "",
        "| id | requirement | tests |",
        "|---|---|---|",
    ]
    lines += [_row(name, facts, tests.get(name, [])) for name, facts in requirements().items()]
    lines += ["", "Tests that the source documents name:", "", "| document | name | tests |", "|---|---|---|"]
    found = named_marks()
    lines += [_named_row(one, found.get(one, []), "**gap**") for one in named()]
    lines += [_named_row(one, found.get(one, []), "not delivered yet") for one in named("planned")]
    return "\n".join(lines) + "\n"


def _row(name: str, requirement: Requirement, tests: list[str]) -> str:
    return f"| {name} | {requirement['text']} | {_shown(tests) or 'not delivered yet'} |"


def _named_row(name: str, tests: list[str], instead: str) -> str:
    document, _, text = name.partition(": ")
    return f"| {document} | {text} | {_shown(tests) or instead} |"


def _shown(tests: list[str]) -> str:
    shown = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests[:6])
    more = f"<br>and {len(tests) - 6} more" if len(tests) > 6 else ""
    return shown + more


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
