"""The likely cause of an error class; the first rule that fits counts. A hint for triage only."""

import re
from enum import StrEnum
from typing import Final, NamedTuple

RUNBOOK: Final = "docs/how-to/work-through-failures.md"


class Cause(StrEnum):
    """By what must happen before the message is sent again."""

    TRANSIENT = "transient"
    DATA = "data"
    AUTH_CONFIG = "auth_config"
    CODE_DEFECT = "code_defect"


class Advice(NamedTuple):
    cause: Cause
    first: str

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.cause.replace('_', '-')}"


_RULES: Final[tuple[tuple[re.Pattern[str], Advice], ...]] = tuple(
    (re.compile(pattern), Advice(cause, first))
    for pattern, cause, first in (
        (r"ADVANCE_UNDECLARED", Cause.CODE_DEFECT,
         "Declare the destination with staged=True and deploy it; confirm what has had its effect, and resume it."),
        (r"RETURN_INVALID", Cause.CODE_DEFECT,
         "Fix what the handler returns and deploy it; confirm what has had its effect, and resume the destination."),
        (r"UNCLASSIFIED|CRASHED|KEPT_ANSWER_INVALID|REQUEST_FAILED", Cause.CODE_DEFECT,
         "Read where it failed last; fix the handler and deploy it."),
        (r"RECORD_.*", Cause.CODE_DEFECT, "Fix `record` (a column, a grant, a bug), then repair; nothing is sent."),
        (r"HTTP_40[137]|.*(?:AUTH|FORBIDDEN|DENIED|CREDENTIAL|PERMISSION|TLS|CERTIFICATE).*", Cause.AUTH_CONFIG,
         "Check credentials, permissions and the address of the destination."),
        (r"EGRESS_.*|.*(?:DNS|NAME_NOT_RESOLVED|ADDRESS).*|HTTP_3\d\d", Cause.AUTH_CONFIG,
         "Check the address of the destination; nothing was sent."),
        (r"HTTP_4(?:08|23|25|29)|HTTP_5\d\d|.*(?:TIMEOUT|CONNECT|UNREACHABLE|RESET|RATE|LOCK|BUSY).*", Cause.TRANSIENT,
         "See whether the destination is up again and has room."),
        (r"MESSAGE_GONE", Cause.DATA,
         "Its row is gone with a dropped partition: restore that and requeue it, or discard it."),
        (r"UNDECODABLE", Cause.DATA, "Discard it and enqueue it anew: its row has values that no relay can read."),
        (r"HTTP_4\d\d|.*(?:SCHEMA|INVALID|VALIDAT|PAYLOAD|NOT_FOUND|MISSING|FORMAT|DUPLICATE|CONFLICT).*", Cause.DATA,
         "Look at the payload: correct it, or what it refers to."),
    )
)  # fmt: skip
_OTHERWISE: Final = Advice(Cause.CODE_DEFECT, "Read the text and the place in the code; no rule knows this class.")


def likely_cause(error_class: str) -> Advice:
    return next((advice for pattern, advice in _RULES if pattern.fullmatch(error_class)), _OTHERWISE)
