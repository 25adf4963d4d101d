"""What a merchant reads: N1 after the first attempts, N2 at the end. Plain text, HTML, and the same numbers as JSON.

Composed once, from the tally of the job, and kept as the payload of its message: the same bytes go out at every
attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any, Final

from redrive.systems.evidence.names import N1, SCHEMA_VERSION
from redrive.systems.evidence.taxonomy import code_of

FILES_MAX: Final = 500
_PAGE: Final = (
    '<!doctype html><html lang="en"><body style="font:15px/1.5 system-ui,sans-serif;color:#1c1f23;max-width:46rem;'
    'margin:1.5rem auto;padding:0 1rem">{body}</body></html>'
)
_CELL: Final = "padding:.15rem .8rem .15rem 0;vertical-align:top;text-align:left"


@dataclass(frozen=True, slots=True)
class Notice:
    """summary: what the webhook gets, and what `redrive_evidence.notice` keeps."""

    subject: str
    text: str
    html: str
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Problem:
    """Files that failed for one code. is_final: they are not tried again."""

    heading: str
    reason: str
    advice: str
    is_final: bool
    files: Sequence[str]
    more: int


def compose(name: str, tally: Mapping[str, Any]) -> Notice:
    """name: N1 or N2. tally: of `redrive_evidence.tally_1`."""
    tally = {**tally, "archive_name": " ".join(tally["archive_name"].split())}  # it goes into the subject
    is_first = name == N1
    problems = [*_problems(tally, is_first=is_first)]
    subject = f"Your evidence upload {tally['archive_name']}: {_verdict(tally, is_first=is_first)}"
    opening = _opening(tally, is_first=is_first)
    numbers = _numbers(tally, is_first=is_first)
    promise = _promise(tally) if is_first else _ending(tally)
    return Notice(
        subject=subject,
        text="\n".join(_text(opening, numbers, promise, problems)),
        html=_PAGE.format(body="".join(_html(subject, opening, numbers, promise, problems))),
        summary=_summary(name, tally),
    )


def _summary(name: str, tally: Mapping[str, Any]) -> Mapping[str, Any]:
    numbers = ("total", "attached", "permanent_failed", "waiting")
    return {
        "notice": name,
        "schema_version": SCHEMA_VERSION,
        "file_job_id": tally["file_job_id"],
        "merchant_id": tally["merchant_id"],
        "archive_name": tally["archive_name"],
        "occurred_at": tally["now"],
        **{number: tally[number] for number in numbers},
        "recovered_by_retry": tally["recovered"],
        "errors": tally["errors"],
        "retried_until": tally["n2_by"] if name == N1 and tally["waiting"] else None,
        "failed_files": [
            {**file, "cannot_retry": file["retry_status"] == "PERMANENT_FAILED"} for file in tally["files"]
        ],
    }


def _verdict(tally: Mapping[str, Any], *, is_first: bool) -> str:
    if tally["attached"] == tally["total"]:
        return "everything is attached"
    if is_first and tally["waiting"]:
        return f"{tally['attached']} of {_files(tally['total'])} attached so far"
    return f"{tally['attached']} of {_files(tally['total'])} attached"


def _opening(tally: Mapping[str, Any], *, is_first: bool) -> str:
    told = f"You uploaded {tally['archive_name']} on {_day(tally['uploaded_at'])}, with {_files(tally['total'])}"
    told += f" for {_cases(tally['cases'])}."
    state = "This is the result of the first pass." if is_first else "This is the final result."
    return f"{told} {state}" if tally["total"] else f"{told} There was nothing to attach."


def _numbers(tally: Mapping[str, Any], *, is_first: bool) -> list[tuple[str, int]]:
    numbers = [("Files in all", tally["total"]), ("Attached", tally["attached"])]
    if not is_first:
        numbers.append(("of these, attached by a retry", tally["recovered"]))
    if tally["waiting"]:
        numbers.append(("To be tried again" if is_first else "Not attached, cause still open", tally["waiting"]))
    return [*numbers, ("Cannot be retried", tally["permanent_failed"])]


def _promise(tally: Mapping[str, Any]) -> str:
    if not tally["waiting"]:
        return "No file is tried again. The final result follows in a second message."
    until = _moment(tally["n2_by"])
    return (
        f"{_files(tally['waiting'])} will be tried again automatically, until {until} at the latest. You need not do"
        " anything about that. We send you the final result as soon as it is known."
    )


def _ending(tally: Mapping[str, Any]) -> str:
    if tally["attached"] == tally["total"]:
        return "You need not do anything."
    return (
        "This upload is closed: its files are not tried again. Evidence that is still missing needs a new upload; the"
        " list says what to do for each file."
    )


def _problems(tally: Mapping[str, Any], *, is_first: bool) -> Iterator[_Problem]:
    open_heading = "Will be tried again" if is_first else "Not attached, and not tried again"
    for error in tally["errors"]:
        code = error["error_code"]
        known = code_of(code)
        for is_final, count in (
            (True, error["permanent_failed"]),
            (False, error["files"] - error["permanent_failed"]),
        ):
            if not count:
                continue
            files = [
                f"line {file['row_number']}, case {file['case_id']}: {file['file_name']}"
                for file in tally["files"]
                if file["error_code"] == code and (file["retry_status"] == "PERMANENT_FAILED") == is_final
            ]
            heading = f"{'Cannot be retried' if is_final else open_heading}: {_files(count)} ({code})"
            advice = "You need not do anything for now." if is_first and not is_final else known.advice
            yield _Problem(heading, known.reason, advice, is_final, files, count - len(files))


def _text(
    opening: str, numbers: Sequence[tuple[str, int]], promise: str, problems: Sequence[_Problem]
) -> Iterator[str]:
    yield opening
    yield ""
    for label, number in numbers:
        yield f"  {label + ':':<34}{number:>6}"
    yield ""
    yield promise
    for problem in problems:
        yield from ("", problem.heading, "-" * len(problem.heading), problem.reason, f"What to do: {problem.advice}")
        yield from (f"  {file}" for file in problem.files)
        if problem.more:
            yield f"  and {problem.more} more"
    yield ""


def _html(
    subject: str, opening: str, numbers: Sequence[tuple[str, int]], promise: str, problems: Sequence[_Problem]
) -> Iterator[str]:
    yield f'<h1 style="font-size:1.25rem;margin:0 0 .6rem">{escape(subject)}</h1><p>{escape(opening)}</p><table>'
    for label, number in numbers:
        yield f'<tr><th style="{_CELL};font-weight:normal">{escape(label)}</th><td><b>{number}</b></td></tr>'
    yield f"</table><p>{escape(promise)}</p>"
    for problem in problems:
        yield f'<h2 style="font-size:1.05rem;margin:1.2rem 0 .2rem">{escape(problem.heading)}</h2>'
        yield f"<p>{escape(problem.reason)}<br><b>What to do:</b> {escape(problem.advice)}</p><ul>"
        yield from (f"<li>{escape(file)}</li>" for file in problem.files)
        if problem.more:
            yield f"<li>and {problem.more} more</li>"
        yield "</ul>"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count:,} cases"


def _day(text: str) -> str:
    return f"{datetime.fromisoformat(text):%d %B %Y}".lstrip("0")


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text):%d %B %Y, %H:%M} UTC".lstrip("0")
