"""The notification of a review, as a person reads it: subject, findings by file with their lines, plain text and HTML.

Made once, when `llm` is settled, and kept as the payload of the message: the same bytes go out at every attempt (R-11).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from redrive.systems.reviews.findings import SEVERITIES, Finding

SHORT_ID: Final = 12
FINDINGS_BYTES_MAX: Final = 200 * 1024  # of JSON, in both forms; a message holds 256 KiB
COLOURS: Final = {"error": "#b3261e", "warning": "#8a5a00", "note": "#44505c"}
_PAGE: Final = (
    '<!doctype html><html lang="en"><body style="font:15px/1.5 '
    "system-ui,sans-serif;color:#1c1f23;max-width:46rem;margin:1.5rem"
    ' auto;padding:0 1rem">{body}</body></html>'
)
_CODE: Final = (
    "background:#f3f4f6;padding:.35rem .6rem;margin:.2rem 0 0;white-space:pre-wrap;font:13px ui-monospace,monospace"
)


def notification(
    *,
    changelist_id: str,
    review_version: int,
    recipient: str,
    repository: str,
    base: str,
    head: str,
    critic: str,
    findings: Sequence[Finding],
) -> dict[str, Any]:
    """The payload of one recipient's message."""
    said = summary(findings)
    fitting = _fitting(findings)
    left_out = len(findings) - len(fitting)
    about = f"{repository} {base[:SHORT_ID]}..{head[:SHORT_ID]}, version {review_version}, reviewed by {critic}"
    return {
        "changelist_id": changelist_id,
        "review_version": review_version,
        "recipient": recipient,
        "subject": f"[review] {changelist_id} (version {review_version}): {said}",
        "text": "\n".join(_text_lines(changelist_id, about, said, fitting, left_out)),
        "html": _PAGE.format(body="".join(_html_parts(changelist_id, about, said, fitting, left_out))),
    }


def summary(findings: Sequence[Finding]) -> str:
    """Such as "1 error, 2 notes"."""
    counted = Counter(one.severity for one in findings)
    said = [f"{counted[one]} {one}{'s' if counted[one] > 1 else ''}" for one in SEVERITIES if counted[one]]
    return ", ".join(said) or "nothing to complain about"


def _fitting(findings: Sequence[Finding]) -> Sequence[Finding]:
    """As many as a message can hold. Each is counted as if it stood under its own heading."""
    size = 0
    for count, one in enumerate(findings):
        shown = [*_text_heading(one.file), *_text_finding(one), _html_heading(one.file), _html_finding(one)]
        size += len(json.dumps(shown))
        if size > FINDINGS_BYTES_MAX:
            return findings[:count]
    return findings


def _more(left_out: int) -> str:
    return f"{left_out} more finding{'s' if left_out > 1 else ''}, left out here: there are too many for one mail."


def _text_lines(changelist_id: str, about: str, said: str, findings: Sequence[Finding], left_out: int) -> Iterator[str]:
    yield f"{changelist_id}: {said}"
    yield about
    for path, group in groupby(findings, key=lambda one: one.file):
        yield from _text_heading(path)
        for one in group:
            yield from _text_finding(one)
    yield ""
    if left_out:
        yield from (_more(left_out), "")


def _text_heading(path: str) -> Sequence[str]:
    return "", path, "-" * len(path)


def _text_finding(one: Finding) -> Iterator[str]:
    yield f"  line {one.line}: {one.severity} ({one.rule}): {one.message}"
    if one.excerpt:
        yield f"      {one.excerpt}"


def _html_parts(changelist_id: str, about: str, said: str, findings: Sequence[Finding], left_out: int) -> Iterator[str]:
    yield f'<h1 style="font-size:1.25rem;margin:0">{escape(changelist_id)}: {escape(said)}</h1>'
    yield f'<p style="color:#5b6570;margin:.2rem 0 1rem">{escape(about)}</p>'
    for path, group in groupby(findings, key=lambda one: one.file):
        yield _html_heading(path)
        yield from (_html_finding(one) for one in group)
    if left_out:
        yield f"<p>{_more(left_out)}</p>"


def _html_heading(path: str) -> str:
    return f'<h2 style="font:600 .95rem ui-monospace,monospace;margin:1.2rem 0 .4rem">{escape(path)}</h2>'


def _html_finding(one: Finding) -> str:
    code = f'<pre style="{_CODE}">{escape(one.excerpt)}</pre>' if one.excerpt else ""
    return (
        f'<div style="margin:0 0 .8rem"><b>Line {one.line}</b> <span '
        f'style="color:{COLOURS[one.severity]}">{one.severity}</span> '
        f'<span style="color:#5b6570">{escape(one.rule)}</span><br>{escape(one.message)}{code}</div>'
    )
