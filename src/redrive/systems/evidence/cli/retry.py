"""`redrive evidence retry`: the retries of a job now, whether they are due or not."""

from __future__ import annotations

from uuid import UUID

import click

from redrive.errors import ActRefused
from redrive.kit.cli import Call, Who, example, output, why
from redrive.kit.database import Connection
from redrive.systems.evidence.cli.shared import evidence_command
from redrive.systems.evidence.reads import no_job
from redrive.systems.evidence.retry import RETRY, refusal_of


@click.command("retry", epilog=example("redrive evidence retry JOB --reason 'The case system is back'"))
@click.argument("job", type=click.UUID)
@why
@evidence_command
def command(call: Call, conn: Connection, job: UUID, who: Who, tenant: str) -> None:
    """Requeue the files of a job that failed for a reason that may pass, without waiting until they are due.

    A file has 3 attempts in all, so what has none left, or cannot be retried, stays as it is.
    """
    row = conn.execute(RETRY, (tenant, job, who.actor, who.reason)).fetchone()
    assert row is not None
    if row["result"] == "not_found":
        raise no_job(job)
    if row["result"] != "done":
        raise ActRefused(refusal_of(row["result"], job), next=f"redrive evidence show {job} --artifacts")
    if call.json:
        said = {"file_job_id": str(job), "rows": row["rows_scheduled"], "artifacts": row["artifacts_scheduled"]}
        output.document("evidence_retried", said)
    else:
        output.note(f"{row['rows_scheduled']} rows with {row['artifacts_scheduled']} files are requeued.")
