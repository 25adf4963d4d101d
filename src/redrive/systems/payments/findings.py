"""Lists findings of a comparison, and acknowledges them with evidence from outside.

Two people acknowledge a finding that something explains which no statement shows, such as a refund. From then on it
does not keep a comparison from being clean; other evidence opens it again. SQL: `sql/verbs/reconcile.sql`.
"""

from collections.abc import Sequence

from redrive.errors import ActRefused, ApproverNeeded, NotFound
from redrive.kit.database import Connection, Row
from redrive.systems.payments.reads import SQL


def listed(conn: Connection, *, rail_type: str | None, resolved: bool, limit: int) -> Sequence[Row]:
    """resolved: also those that a later comparison no longer found."""
    conn.execute("SELECT set_config('redrive.tenant', '*', true)")  # a statement is of a rail, and so of all tenants
    return SQL.rows(conn, "findings", {"rail_type": rail_type, "all": resolved, "limit": limit})


def acknowledge(
    conn: Connection, *, rail_type: str, kind: str, subject: str, reference: str, actor: str, reason: str
) -> None:
    """Commits, also where a second person is still needed: then ActRefused says so."""
    query = "SELECT redrive_payments.acknowledge_finding_1(%s, %s, %s, %s, %s, %s) AS answer"
    found = conn.execute(query, (rail_type, kind, subject, actor, reason, reference)).fetchone()
    conn.commit()
    answer = None if found is None else found["answer"]
    match answer:
        case "done":
            return
        case "not_found":
            raise NotFound(
                f"No finding {kind} of {subject} on rail {rail_type} is open.", next="redrive payments findings list"
            )
        case "second_person":
            raise ActRefused(
                f"It is about money: the acknowledgement by {actor} is noted, and a second person has to ask too.",
                next="the same command by another --actor, an approver, within a day",
            )
        case "approver":
            raise ApproverNeeded(
                "Another person has acknowledged it with the same reference; to be the second takes the role approver."
            )
        case "acknowledged":
            raise ActRefused("It is acknowledged already.", next="redrive payments findings list")
        case "not_registered":
            raise ActRefused(
                f"No relay has declared rail {rail_type} yet; a finding can be acknowledged once one has.",
                next="start a relay that declares it",
            )
    raise ActRefused(f"It is not acknowledged: {answer}.")
