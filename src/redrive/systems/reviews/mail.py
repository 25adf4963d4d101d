"""The notification of a review, as a person reads it: subject, findings by file with their lines, plain text and HTML.

Made once, when `llm` is settled, and kept as the payload of the message: the same bytes go out at every attempt (R-11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from redrive.systems.reviews.findings import SEVERITIES, Finding

SHORT_ID: Final = 12
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
    about = f"{repository} {base[:SHORT_ID]}..{head[:SHORT_ID]}, version {review_version}, reviewed by {critic}"
    return {
        "changelist_id": changelist_id,
        "review_version": review_version,
        "recipient": recipient,
        "subject": f"[review] {changelist_id} (version {review_version}): {said}",
        "text": "\n".join(_text_lines(changelist_id, about, said, findings)),
        "html": _PAGE.format(body="".join(_html_parts(changelist_id, about, said, findings))),
    }


def summary(findings: Sequence[Finding]) -> str:
    """Such as "1 error, 2 notes"."""
    counted = Counter(one.severity for one in findings)
    said = [f"{counted[one]} {one}{'s' if counted[one] > 1 else ''}" for one in SEVERITIES if counted[one]]
    return ", ".join(said) or "nothing to complain about"


def _text_lines(changelist_id: str, about: str, said: str, findings: Sequence[Finding]) -> Iterator[str]:
    yield f"{changelist_id}: {said}"
    yield about
    for path, group in groupby(findings, key=lambda one: one.file):
        yield from ("", path, "-" * len(path))
        for one in group:
            yield f"  line {one.line}: {one.severity} ({one.rule}): {one.message}"
            if one.excerpt:
                yield f"      {one.excerpt}"
    yield ""


def _html_parts(changelist_id: str, about: str, said: str, findings: Sequence[Finding]) -> Iterator[str]:
    yield f'<h1 style="font-size:1.25rem;margin:0">{escape(changelist_id)}: {escape(said)}</h1>'
    yield f'<p style="color:#5b6570;margin:.2rem 0 1rem">{escape(about)}</p>'
    for path, group in groupby(findings, key=lambda one: one.file):
        yield f'<h2 style="font:600 .95rem ui-monospace,monospace;margin:1.2rem 0 .4rem">{escape(path)}</h2>'
        yield from (_html_finding(one) for one in group)


def _html_finding(one: Finding) -> str:
    code = f'<pre style="{_CODE}">{escape(one.excerpt)}</pre>' if one.excerpt else ""
    return (
        f'<div style="margin:0 0 .8rem"><b>Line {one.line}</b> <span '
        f'style="color:{COLOURS[one.severity]}">{one.severity}</span> '
        f'<span style="color:#5b6570">{escape(one.rule)}</span><br>{escape(one.message)}{code}</div>'
    )
