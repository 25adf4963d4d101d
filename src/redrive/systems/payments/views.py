"""What the console shows of payments: each payment with where it is, and what the books could not explain."""

from importlib.resources import files
from typing import Final

from redrive.system import View

_READS: Final = files("redrive.systems.payments") / "sql" / "reads"

VIEWS: Final = {
    "payments": View(
        title="Payments",
        lead="Each payment that was taken, with its number in the line of who pays and its terms as last edited; "
        "open one for its whole story.",
        sql=_READS / "payments_view.sql",
        columns={
            "instruction_id": "Instruction",
            "state": "State",
            "amount": "Amount",
            "currency": "Currency",
            "participant_id": "Participant",
            "sequence_id": "Number",
            "rail_type": "Rail",
            "destination": "To",
            "created_at": "Submitted",
        },
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
        columns={
            "sentence": "What",
            "state": "State",
            "rail_type": "Rail",
            "kind": "Kind",
            "subject": "Subject",
            "first_seen_at": "First seen",
            "last_seen_at": "Last seen",
        },
        position="last_seen_at",
        state="state",
        search="Rail",
        nothing="The books are compared by a duty of the relays; what it cannot explain is listed here.",
        all_tenants=True,
    ),
}
