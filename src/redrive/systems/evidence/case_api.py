"""The destination `case-api`: attaches one file to its case, and asks by the attachment key before it attaches again.

A message is one attempt (E-09): its policy has a second send, which is never made, so that an attempt in doubt is asked
about instead of being held; once the Case API says "not there", the attempt has failed with the code of the doubt, and
only the scheduler starts another one. Before each call the relay asks whether the attempt may still be made
(`sql/verbs/permit.sql`), and checks the stored file against the sha256 of the upload.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from redrive import (
    Attempt,
    Backoff,
    Breaker,
    CannotTell,
    Delivered,
    Destination,
    Found,
    Policy,
    Retryable,
    Terminal,
)
from redrive.errors import InvalidValue
from redrive.kit.transport import Answer, LookupAnswer, Record, rules_of
from redrive.systems.evidence.attachment import Attachment
from redrive.systems.evidence.case_caller import CaseCaller, LimitBy
from redrive.systems.evidence.case_codes import LOOKUP_PREFIX
from redrive.systems.evidence.names import CASE_API
from redrive.systems.evidence.stored_file import StoredFiles, checked_content
from redrive.systems.evidence.taxonomy import CASE_NOT_FOUND, NOT_ATTEMPTED
from redrive.systems.evidence.work import CASE_GONE, GO, LATE, OVER, UNKNOWN, AttemptTable
from redrive.transports.http import Egress

TIMEOUT_SECONDS: Final = 30.0
LOOKUP_AFTER_SECONDS: Final = 2.0
CONCURRENCY: Final = 10
CASES_GONE_MAX: Final = 10_000  # that a relay remembers
ATTEMPT_OVER: Final = "ATTEMPT_OVER"
ATTEMPT_UNKNOWN: Final = "ATTEMPT_UNKNOWN"
# One send. What is in doubt is asked about 20 times, over about an hour and a half, before a person is asked.
POLICY: Final = Policy(
    attempts=2,
    backoff=Backoff(initial_seconds=2, multiplier=1, max_seconds=2, jitter=0.2),
    lookups=20,
    lookup_backoff=Backoff(initial_seconds=2, multiplier=2, max_seconds=300, jitter=0.2),
)
_NOT_PERMITTED: Final[Mapping[str, tuple[str, str]]] = {
    CASE_GONE: (CASE_NOT_FOUND, "The Case API said so of another file of the case."),
    LATE: (NOT_ATTEMPTED, "The deadline passed before the call."),
    OVER: (ATTEMPT_OVER, "The attempt has an outcome, or its job is closed."),
    UNKNOWN: (ATTEMPT_UNKNOWN, "The message is no attempt for this artifact."),
}
BREAKER: Final = Breaker(codes=frozenset({"HTTP_503"}))


@dataclass(frozen=True, kw_only=True)
class CaseApi:
    """Where the Case API is, and how it is treated.

    url: `POST {url}/cases/{case}/attachments`, `GET {url}/cases/{case}/attachments/{key}`. headers: sent with each
    request, such as a credential. lookup_after_seconds: from when its "not there" is believed. limit_by: "tenant" where
    it has limits for each of them; None: breaker, rests and rate are of the whole destination.
    A relay holds at most `concurrency` files in memory.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS
    lookup_after_seconds: float = LOOKUP_AFTER_SECONDS
    concurrency: int = CONCURRENCY
    rate: float | None = None
    limit_by: LimitBy = None
    policy: Policy = POLICY
    breaker: Breaker = BREAKER
    egress: Egress = field(default_factory=Egress)

    def __post_init__(self) -> None:
        if self.policy.attempts != POLICY.attempts:
            raise InvalidValue(
                f"The policy of the Case API has {self.policy.attempts} attempts; a message has one, and a second "
                f"claim for what is in doubt: it must be {POLICY.attempts}. The scheduler makes the retries."
            )

    def destination(self, files: StoredFiles, record: Record, *, deadline_seconds: float) -> Destination:
        """deadline_seconds: as the settings of evidence have it."""
        rules = rules_of(
            CASE_API,
            can_look_up=True,
            timeout_seconds=self.timeout_seconds,
            policy=self.policy,
            in_doubt="lookup",
            lookup_after_seconds=self.lookup_after_seconds,
            on_dead="continue",
        )
        return Destination(
            name=CASE_API,
            transport=AttachTransport(self, files, deadline_seconds=deadline_seconds),
            rules=rules,
            concurrency=self.concurrency,
            timeout_seconds=self.timeout_seconds,
            rate=self.rate,
            breaker=self.breaker,
            record=record,
        )


class AttachTransport:
    """One attempt: permit, file, question, call."""

    def __init__(self, api: CaseApi, files: StoredFiles, *, deadline_seconds: float) -> None:
        self._files, self._deadline_seconds = files, deadline_seconds
        self._table = AttemptTable()
        self._gone = _Recent(CASES_GONE_MAX)
        self._caller = CaseCaller(
            api.url, headers=api.headers, egress=api.egress, connections=api.concurrency, limit_by=api.limit_by
        )
        self.limit_key = self._caller.limit_key
        self.address: str | None = None

    def use_database(self, dsn: str) -> None:
        """Called by the relay."""
        self._table.use_database(dsn)

    async def validate(self, attempt: Attempt) -> None:
        Attachment.read(attempt.payload)

    async def lookup(self, attempt: Attempt) -> LookupAnswer:
        return await self._caller.ask(Attachment.read(attempt.payload))

    async def send(self, attempt: Attempt) -> Answer:
        wanted = Attachment.read(attempt.payload)
        instead = ended_before(attempt) or await self._refused(attempt, wanted)
        if instead is None and wanted.attempt > 1:
            instead = await self._asked_first(wanted)
        if instead is None:
            instead = await self._attached(attempt, wanted)
        return instead

    async def aclose(self) -> None:
        await self._caller.aclose()
        await self._table.aclose()

    async def _refused(self, attempt: Attempt, wanted: Attachment) -> Answer | None:
        """Without a call. What the Case API has just said of the case may not be in the tables yet."""
        if wanted.case in self._gone:
            return Terminal(*_NOT_PERMITTED[CASE_GONE])
        permit = await self._table.permit(attempt.id, wanted.artifact_id, deadline_seconds=self._deadline_seconds)
        return None if permit == GO else Terminal(*_NOT_PERMITTED[permit])

    async def _asked_first(self, wanted: Attachment) -> Answer | None:
        """Before a retry: an attempt that counted as failed may have attached the file all the same."""
        match await self._caller.ask(wanted):
            case Found(reference):
                return Delivered(reference, {"by": "lookup"})
            case CannotTell(code, text):
                return Terminal(code, text)
        return None

    async def _attached(self, attempt: Attempt, wanted: Attachment) -> Answer:
        content = await checked_content(self._files, wanted)
        if isinstance(content, Terminal):
            return content
        answer = once(await self._caller.attach(attempt, wanted, content))
        if isinstance(answer, Terminal) and answer.code == CASE_NOT_FOUND:
            self._gone.add(wanted.case)
        return answer


class _Recent:
    """The last ones that were added."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Hashable, None] = {}

    def add(self, one: Hashable) -> None:
        self._found[one] = None
        if len(self._found) > self._most:
            del self._found[next(iter(self._found))]

    def __contains__(self, one: Hashable) -> bool:
        return one in self._found


def ended_before(attempt: Attempt) -> Answer | None:
    """The attempt was made by an earlier claim of the message, and asked about since, if need be: it is not there."""
    if attempt.spent == 0:
        return None
    codes = [
        entry.code
        for entry in attempt.earlier
        if entry.settlement == "retry" and entry.code and not entry.code.startswith((LOOKUP_PREFIX, "ABSENT_"))
    ]
    return Terminal(codes[-1] if codes else "NETWORK_TIMEOUT", "It was asked afterwards: the file is not attached.")


def once(answer: Answer) -> Answer:
    """A failure ends the message, because the scheduler makes the retries. Two stay with the engine: no connection,
    which spends nothing, and a rest that the Case API asks for, which others must be spared.
    """
    if isinstance(answer, Retryable) and not answer.destination_down and answer.retry_after is None:
        return Terminal(answer.code, answer.text)
    return answer
