"""`redrive evidence lineage`: from the archive to the events, for one file."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import click

from redrive.kit.cli import Call, Column, attempts_table, example, output
from redrive.kit.database import Connection, Row
from redrive.systems.evidence.cli.shared import evidence_command
from redrive.systems.evidence.reads import SQL, Lineage, no_artifact

_MESSAGES: Final = (
    Column("message"),
    Column("what"),
    Column("outcome"),
    Column("code"),
    Column("state"),
    Column("when"),
)


@click.command("lineage", epilog=example("redrive evidence lineage 0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e"))
@click.argument("artifact", type=click.UUID)
@evidence_command
def command(call: Call, conn: Connection, artifact: UUID, tenant: str) -> None:
    """Where a file comes from and what was done with it: archive, row, artifact, messages, attempts and events.

    `redrive evidence show JOB --artifacts` has the ids of artifacts.
    """
    named = {"tenant": tenant, "artifact_id": artifact}
    found = SQL.rows(conn, "lineage", named)
    if not found:
        raise no_artifact(artifact)
    lineage = Lineage(found[0], SQL.rows(conn, "lineage_messages", named), SQL.rows(conn, "lineage_attempts", named))
    if call.json:
        output.document("evidence_lineage", lineage.document())
        return
    output.show(output.pairs(_origin(lineage.origin)))
    output.show(output.table(_MESSAGES, [_message(one) for one in lineage.messages]))
    output.show(attempts_table(lineage.attempts, number="number"))


def _origin(one: Row) -> list[tuple[str, object]]:
    retry = f"{one['retry_status']}, {one['attempt_count']} attempts, {one['retry_count']} of them retries"
    return [
        ("archive", f"{one['archive_name']} (job {one['file_job_id']}, merchant {one['merchant_id']})"),
        ("row", f"line {one['row_number']}, case {one['case_id']}, {one['evidence_status']}"),
        ("file", f"{one['file_name']}, {one['file_size_bytes']} bytes, sha256 {one['sha256']}"),
        ("stored", one["s3_key"]),
        ("attached", output.state(one["attachment_status"])),
        ("retry", retry),
        ("error", one["attachment_error_code"] or "–"),
        ("attachment", one["attachment_reference"] or "–"),
    ]


def _message(one: Row) -> tuple[object, ...]:
    return (
        one["message_id"],
        one["what"],
        one["outcome"] or "–",
        one["error_code"] or "–",
        output.state(one["state"]) if one["state"] else "–",
        output.short_moment(one["at"]),
    )
