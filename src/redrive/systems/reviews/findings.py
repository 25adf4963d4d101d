"""What a critic says: findings by file and line, and the schema that an answer of a language model must fit.

`read_answer` refuses what does not fit, so that nothing but checked values reaches a mail: a file that is not in the
diff and a line that was not added are refused as much as a text that is no JSON. What looks like a secret is repeated
by no critic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, cast, get_args

from redrive.systems.reviews.diff import FileDiff

Severity = Literal["error", "warning", "note"]
SEVERITIES: Final = get_args(Severity)
FINDINGS_MAX: Final = 100
MESSAGE_MAX: Final = 500
RULE_MAX: Final = 60
EXCERPT_MAX: Final = 160
HIDDEN: Final = "[…]"
LINE_CHARACTERS_READ: Final = 1000  # by the patterns, which take time by the square of a line that is made for it
_SENSITIVE_NAME: Final = r"(?i:password|passwd|secret|api_?key|access_?key|auth_?token|private_?key)"
SECRET: Final = re.compile(
    rf"{_SENSITIVE_NAME}[\w-]*[\"']?\s*[:=]\s*[\"'](?P<value>[^\"'\s{{}}$<>]{{8,}})[\"']"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b"
)
_FENCED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


class AnswerInvalid(ValueError):
    """Which rule the answer of a critic breaks; without its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """file, line: where, in the new version. rule: a short name. message: one sentence. excerpt: the line; empty
    where it must not be repeated.
    """

    file: str
    line: int
    severity: Severity
    rule: str
    message: str
    excerpt: str = ""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Finding:
        return cls(**given)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_answer(text: str, files: Sequence[FileDiff]) -> list[Finding]:
    """`{"findings": [{file, line, severity, rule, message}]}`; raises AnswerInvalid."""
    fenced = _FENCED.fullmatch(text)  # as many models write JSON, whatever they are told
    try:
        answer = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        raise AnswerInvalid("it is no JSON") from None
    listed = answer.get("findings") if isinstance(answer, dict) else None
    if not isinstance(listed, list) or len(listed) > FINDINGS_MAX:
        raise AnswerInvalid(f"findings must be a list of at most {FINDINGS_MAX}")
    by_path = {one.path: one for one in files}
    return in_order([_finding(one, by_path) for one in listed])


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """By file and line: the same findings are the same mail."""
    return sorted(findings, key=lambda one: (one.file, one.line, SEVERITIES.index(one.severity), one.rule, one.message))


def _finding(given: object, files: Mapping[str, FileDiff]) -> Finding:
    if not isinstance(given, dict):
        raise AnswerInvalid("a finding must be an object")
    file = files.get(given["file"]) if isinstance(given.get("file"), str) else None
    line = given.get("line")
    if file is None or type(line) is not int or not file.has_line(line):
        raise AnswerInvalid("a finding must name a file of the diff and a line that was added")
    if given.get("severity") not in SEVERITIES:
        raise AnswerInvalid(f"severity must be one of {', '.join(SEVERITIES)}")
    return Finding(
        file=file.path,
        line=line,
        severity=cast("Severity", given["severity"]),
        rule=_text(given, "rule", RULE_MAX),
        message=_without(secret_in(file.text_of(line)), _text(given, "message", MESSAGE_MAX)),
        excerpt=excerpt_of(file.text_of(line)),
    )


def _without(secret: str, text: str) -> str:
    return text.replace(secret, HIDDEN) if secret else text


def _text(given: Mapping[str, Any], name: str, most: int) -> str:
    value = given.get(name)
    plain = _printable(" ".join(value.split())) if isinstance(value, str) else ""
    if not 1 <= len(plain) <= most:
        raise AnswerInvalid(f"{name} must be a text of 1 to {most} characters")
    return plain


def secret_in(line: str) -> str:
    """What looks like a secret; empty where nothing does."""
    found = SECRET.search(line[:LINE_CHARACTERS_READ])
    return "" if found is None else found["value"] or found[0]


def excerpt_of(line: str) -> str:
    """Empty where it would repeat a secret."""
    return "" if secret_in(line) else _printable(line.strip())[:EXCERPT_MAX]


def _printable(text: str) -> str:
    """Without what a mail program could obey (an escape sequence, another writing direction) or no table keeps."""
    return "".join(one for one in text.replace("\t", " ") if one.isprintable())
