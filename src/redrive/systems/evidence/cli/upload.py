"""`redrive evidence upload`: an archive becomes a job, or is refused with everything that is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from redrive.errors import SettingsError
from redrive.kit.cli import Call, Column, Exit, example, output, plain_command, tenant_option
from redrive.kit.database import connected
from redrive.kit.statements import Steps, run
from redrive.systems.evidence.checking import check
from redrive.systems.evidence.names import SYSTEM
from redrive.systems.evidence.problems import UploadRefused, as_csv
from redrive.systems.evidence.storage import storage_of
from redrive.systems.evidence.uploading import Upload, upload

T = TypeVar("T")
_COLUMNS: Final = (Column("file"), Column("line", "right"), Column("rule"), Column("what is wrong", fold=True))


@click.command(
    "upload",
    epilog=example(
        "redrive evidence upload may.zip --merchant shop-7 --notify-mail ada@example.org",
        "redrive evidence upload may.zip --check --report problems.csv",
    ),
)
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--merchant", "merchant_id", help="Whose evidence it is. Needed unless --check is given.")
@click.option("--key", "idempotency_key", help="The same archive under the same key is one job. Default: its sha256.")
@click.option("--notify-mail", metavar="ADDRESS", help="Where the two summaries go by mail.")
@click.option("--notify-webhook", metavar="URL", help="Where the two summaries go by webhook.")
@click.option(
    "--storage",
    envvar="EVIDENCE_STORAGE",
    metavar="URL",
    help="Where the files are kept: file:///directory or s3://bucket/prefix.",
)
@click.option("--check", "check_only", is_flag=True, help="Report all problems; store nothing, and need no database.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write the problems to this CSV file.")
@tenant_option(SYSTEM)
@plain_command
def command(
    call: Call, archive: Path, check_only: bool, report: Path | None, storage: str | None, **values: Any
) -> None:
    """Check an archive and store it: a ZIP with one CSV at its top, which names the files of each case.

    The CSV has the columns case_id and files (names separated by |), and may have types. An archive with a problem is
    refused as a whole: every problem is listed with file, line and rule, nothing is stored, and the exit code is 6.
    """
    try:
        if check_only:
            _checked(call, archive)
        else:
            _uploaded(call, archive, storage, values)
    except UploadRefused as refusal:
        _refused(call, archive, refusal, report)
        raise click.exceptions.Exit(Exit.FINDINGS) from None


def _checked(call: Call, archive: Path) -> None:
    found = check(archive)
    if call.json:
        _document(archive, 0, [])
    else:
        output.note(f"Nothing is wrong: {len(found.lines)} rows with {found.files} files.")


def _uploaded(call: Call, archive: Path, storage: str | None, values: dict[str, Any]) -> None:
    if values["merchant_id"] is None:
        raise click.UsageError("--merchant is missing.", click.get_current_context())
    if storage is None:
        raise SettingsError("No storage is named.", next="--storage file:///directory, or set EVIDENCE_STORAGE")
    dsn = call.dsn

    def transact(steps: Steps[T]) -> T:
        with connected(dsn, name=f"redrive {SYSTEM}") as conn:
            return run(conn, steps)

    done = upload(transact, storage_of(storage), Upload(archive=archive, **values))
    if call.json:
        output.document("evidence_uploaded", {**asdict(done), "file_job_id": str(done.file_job_id)})
        return
    output.show(output.pairs([("job", done.file_job_id), ("rows", done.rows), ("files", done.artifacts)]))
    if done.already_existed:
        output.note("It was uploaded before.")


def _refused(call: Call, archive: Path, refusal: UploadRefused, report: Path | None) -> None:
    if report is not None:
        report.write_text("".join(as_csv(refusal.problems)), encoding="utf-8", newline="")
    if call.json:
        _document(archive, refusal.found, [asdict(one) for one in refusal.problems])
        return
    rows = [(one.file, one.line, one.rule, one.detail) for one in refusal.problems]
    output.show(output.table(_COLUMNS, rows))
    output.note(f"Nothing was stored: {refusal.found} {'problem' if refusal.found == 1 else 'problems'}.")


def _document(archive: Path, found: int, items: list[dict[str, Any]]) -> None:
    output.document("evidence_problems", {"archive": archive.name, "found": found, "items": items})
