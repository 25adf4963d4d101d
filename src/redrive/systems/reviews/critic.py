"""Critics: who looks at a diff. `RuleCritic` is the embedded default, and needs no account (R-09).

Its rules look at added lines only, and say what is most likely wrong with one of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from redrive.systems.reviews.changelist import Changelist
from redrive.systems.reviews.diff import AddedLine, FileDiff, parse_diff
from redrive.systems.reviews.findings import (
    FINDINGS_MAX,
    LINE_CHARACTERS_READ,
    SECRET,
    Finding,
    Severity,
    excerpt_of,
    in_order,
)

LINE_CHARACTERS_MAX: Final = 160


class Critic(Protocol):
    """`name` is kept with the review. `review` raises the answers of `redrive.systems.reviews.taxonomy`."""

    @property
    def name(self) -> str: ...

    async def review(self, changelist: Changelist) -> list[Finding]: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Rule:
    """pattern: of an added line. files: how its name ends; empty = any."""

    name: str
    severity: Severity
    pattern: re.Pattern[str]
    message: str
    files: tuple[str, ...] = ()

    def applies_to(self, path: str) -> bool:
        return not self.files or path.endswith(self.files)


def _rule(name: str, severity: Severity, pattern: str | re.Pattern[str], message: str, *files: str) -> Rule:
    return Rule(name, severity, re.compile(pattern), message, files)


_PYTHON: Final = (".py",)
_SCRIPT: Final = (".js", ".ts", ".jsx", ".tsx")
RULES: Final = (
    _rule("conflict-marker", "error", r"^(?:<{7}|>{7}) ", "A merge conflict was not resolved."),
    _rule(
        "hard-coded-secret",
        "error",
        SECRET,
        "This looks like a secret. Revoke it, and read it from the environment.",
    ),
    _rule("debugger", "error", r"\bbreakpoint\(\)|\bi?pdb\.set_trace\(\)", "A breakpoint was left here.", *_PYTHON),
    _rule("debugger", "error", r"^\s*debugger;?\s*$", "A breakpoint was left here.", *_SCRIPT),
    _rule("bare-except", "warning", r"^\s*except\s*:", "This also catches SystemExit and KeyboardInterrupt.", *_PYTHON),
    _rule(
        "mutable-default",
        "warning",
        r"\bdef \w+\(.*=\s*(?:\[\]|\{\}|set\(\))",
        "All calls share this default value.",
        *_PYTHON,
    ),
    _rule("eval", "warning", r"(?<![\w.])(?:eval|exec)\(", "Code is made from data here.", *_PYTHON, *_SCRIPT),
    _rule(
        "unverified-tls",
        "error",
        r"\bverify\s*=\s*False\b|rejectUnauthorized:\s*false",
        "The server's certificate is not checked.",
    ),
    _rule(
        "shell",
        "warning",
        r"\bshell\s*=\s*True\b",
        "A shell interprets this command; give a list of arguments.",
        *_PYTHON,
    ),
    _rule(
        "sql-from-strings",
        "error",
        r"\bexecute\w*\(\s*(?:f[\"']|[\"'][^\"']*[\"']\s*(?:%|\+|\.format\())",
        "This statement is put together from strings; use parameters.",
        *_PYTHON,
    ),
    _rule(
        "disabled-test",
        "warning",
        r"@(?:pytest\.mark|unittest)\.skip\b|\b(?:it|describe|test)\.skip\(",
        "A test is switched off.",
    ),
    _rule(
        "focused-test",
        "error",
        r"\b(?:it|describe|test)\.only\(",
        "All other tests are switched off by this.",
        *_SCRIPT,
    ),
    _rule("print", "note", r"^\s*print\(", "Is this output meant, or left from debugging?", *_PYTHON),
    _rule("console-log", "note", r"^\s*console\.log\(", "Is this output meant, or left from debugging?", *_SCRIPT),
    _rule("open-question", "note", r"\b(?:TODO|FIXME|XXX)\b", "This is not finished; name the ticket."),
    _rule(
        "trailing-space", "note", r"[^\s][ \t]+$", "There is space at the end of the line.", ".py", ".sql", ".js", ".ts"
    ),
)


class RuleCritic:
    """Checks each added line by `RULES`, and its length."""

    name = "rules"

    async def review(self, changelist: Changelist) -> list[Finding]:
        return await asyncio.to_thread(_review, changelist.diff)  # a large diff takes a while

    async def aclose(self) -> None:
        """It has nothing open."""


def _review(diff: str) -> list[Finding]:
    return in_order([finding for file in parse_diff(diff) for finding in findings_of(file)])[:FINDINGS_MAX]


def findings_of(file: FileDiff, rules: Sequence[Rule] = RULES) -> Iterator[Finding]:
    applying = [rule for rule in rules if rule.applies_to(file.path)]
    for line in file.added:
        read = line.text if len(line.text) <= LINE_CHARACTERS_READ else f"{line.text[:LINE_CHARACTERS_READ]}…"
        for rule in applying:
            if rule.pattern.search(read):
                yield _finding(file.path, line, rule.severity, rule.name, rule.message)
        if len(line.text) > LINE_CHARACTERS_MAX:
            message = f"The line has {len(line.text)} characters."
            yield _finding(file.path, line, "note", "long-line", message)


def _finding(path: str, line: AddedLine, severity: Severity, rule: str, message: str) -> Finding:
    excerpt = excerpt_of(line.text)
    return Finding(file=path, line=line.number, severity=severity, rule=rule, message=message, excerpt=excerpt)
