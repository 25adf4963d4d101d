"""What the console shows of payments: each payment with where it is, and what the books could not explain."""

from importlib.resources import files
from typing import Final

from redrive.system import View, headings

_READS: Final = files("redrive.systems.payments") / "sql" / "reads"

VIEWS: Final = {
    "payments": View(
        title="Payments",
        lead="Each payment, with its number in the order of its participant and its terms as last edited; open one for "
        "its whole story.",
        sql=_READS / "payments_view.sql",
        columns=headings(
            "instruction_id state amount currency participant_id sequence_id rail_type destination created_at",
            sequence_id="Number",
            rail_type="Rail",
            destination="To",
            created_at="Submitted",
        ),
        position="outbox_id",
        state="state",
        message="outbox_id",
        search="Instruction or participant",
        nothing="A payment is here as soon as the transaction that submitted it commits.",
    ),
    "findings": View(
        title="Findings",
        lead="Where our books and the rails’ statements do not agree, and only a person can say why.",
        sql=_READS / "findings_view.sql",
        columns=headings(
            "sentence state rail_type kind subject first_seen_at last_seen_at", sentence="What", rail_type="Rail"
        ),
        position="last_seen_at",
        state="state",
        search="Rail",
        nothing="The books are compared by a duty of the relays; what it cannot explain is listed here.",
        all_tenants=True,
    ),
}
