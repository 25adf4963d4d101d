"""Run cases one after the other, each in a database of its own on one server."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redrive.kit.proof.database import open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.report import Progress, commit_of_the_code, of_commit
from redrive.prove.isolation.environment import Case, CaseEnvironment, Figure


@dataclass(frozen=True, kw_only=True)
class Measured:
    case: str
    title: str
    seconds: float
    figures: Sequence[Figure]


@dataclass(frozen=True, kw_only=True)
class Report:
    commit: str | None
    server: str
    cases: Sequence[Measured]

    @property
    def ok(self) -> bool:
        return all(figure.holds for case in self.cases for figure in case.figures)

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}

    def lines(self) -> Iterator[str]:
        yield f"redrive prove isolation{of_commit(self.commit)}"
        yield self.server
        for case in self.cases:
            yield ""
            yield f"{case.case}: {case.title} ({case.seconds:.0f} s)"
            for figure in case.figures:
                yield f"  {_number(figure.measured):>10} {figure.unit:<3}{_bound(figure):<24} {figure.what}"


def prove(cases: Sequence[Case], *, dsn: str | None, progress: Progress) -> Report:
    measured = []
    server = ""
    for number, case in enumerate(cases):
        progress("cases", number, len(cases))
        with open_directory() as directory, open_proof_database(directory, dsn) as database:
            server = database.server
            measured.append(_measure(case, directory, database.dsn))
    return Report(commit=commit_of_the_code(), server=server, cases=measured)


def _measure(case: Case, directory: Path, dsn: str) -> Measured:
    began = time.monotonic()
    with CaseEnvironment(directory, dsn) as environment:
        figures = case(environment)
    name, title = case.__name__.replace("_", "-"), (case.__doc__ or "").partition("\n")[0]
    return Measured(case=name, title=title, seconds=time.monotonic() - began, figures=figures)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _bound(figure: Figure) -> str:
    if figure.bound is None:
        return ""
    return f"{'' if figure.holds else 'NOT '}within {_number(figure.bound)} {figure.unit}".rstrip()
