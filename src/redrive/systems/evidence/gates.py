"""N1 and N2, each sent once (E-06, E-12): the gates of a job, decided by `redrive.patterns.batches`.

N1 opens when every file had an outcome; at the latest 24 h after the seal, when untried ones are given up. N2 opens
when N1 was sent and no file is untried or to be tried again; at the latest 24 h after N1: then nothing is begun any
more, attempts under way are awaited for a while, and the rest is given up. The mark and the notice's messages are one
transaction. SQL: `sql/verbs/gates.sql`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from redrive.kit.statements import Steps, canonical_json
from redrive.patterns.batches import Batches, Gate
from redrive.systems.evidence.names import N1, N2, NOTICE_MAIL, NOTICE_WEBHOOK, SYSTEM
from redrive.systems.evidence.notices import FILES_MAX, Notice, compose
from redrive.systems.evidence.settings import EvidenceSettings

Tally = Mapping[str, Any]
_LOCK: Final = "SELECT redrive_evidence.lock_job_1(%s::uuid)"
_TALLY: Final = "SELECT redrive_evidence.tally_1(%s::uuid, %s::float8, %s::integer)::text"
_WAITING: Final = "SELECT j FROM redrive_evidence.open_jobs_1(%s::uuid, %s::integer) j"
_REBUILD: Final = "SELECT redrive_evidence.rebuild_rollups_1(%s::uuid)"
_EXPIRE: Final = "SELECT redrive_evidence.expire_1(%s::uuid, %s::boolean, %s::boolean, %s::boolean)"
_PASSED: Final = "SELECT redrive_evidence.pass_gate_1(%s::uuid, %s::text, %s::boolean)"
_ENQUEUE: Final = (
    "SELECT id FROM redrive.enqueue_1(%s::text, %s::bytea, %s::text, %s::text, %s::text, p_token_seed => %s::text)"
)
_KEEP: Final = "SELECT redrive_evidence.keep_notice_1(%s::uuid, %s::uuid, %s::text, %s::text, %s::text::json)"


def batches_of(settings: EvidenceSettings) -> Batches[Tally]:
    """The gates by these settings: `.duty()` for relays, `.adecide(conn, job)` for the consumer of results."""
    return Batches(SYSTEM, source=_Jobs(settings), gates=_gates(settings))


def _gates(settings: EvidenceSettings) -> Sequence[Gate[Tally]]:
    return [
        Gate(
            name=N1,
            opens=lambda tally: tally["untried"] == 0,
            passed=lambda id, tally: _send(N1, id, tally),
            is_overdue=_is_overdue,
            expire=lambda id, tally: _expire(id, tally, settings, only_untried=True),
        ),
        Gate(
            name=N2,
            opens=lambda tally: _may_close(tally, settings),
            passed=lambda id, tally: _send(N2, id, tally),
            is_overdue=_is_overdue,
            expire=lambda id, tally: _expire(id, tally, settings, only_untried=False),
        ),
    ]


def _is_overdue(tally: Tally) -> bool:
    return bool(tally["overdue_seconds"] >= 0)


def _may_close(tally: Tally, settings: EvidenceSettings) -> bool:
    """Without `give_up_at_deadline` what is open then stays as it is, and N2 says so."""
    if tally["unsettled"] == 0:
        return True
    return not settings.give_up_at_deadline and _is_overdue(tally) and tally["in_flight"] == 0


def _expire(id: UUID, tally: Tally, settings: EvidenceSettings, *, only_untried: bool) -> Steps[None]:
    is_patience_over = tally["overdue_seconds"] >= settings.in_flight_seconds
    yield _EXPIRE, (id, only_untried, is_patience_over, settings.give_up_at_deadline)


def _send(name: str, id: UUID, tally: Tally) -> Steps[None]:
    notice = compose(name, tally)
    for channel, destination, payload in _messages(notice, tally):
        key = f"evidence:{id}:{name}:{channel}"
        body = canonical_json(payload)
        rows = yield _ENQUEUE, (destination, body, key, tally["tenant"], f"evidence {name}", key)
        yield _KEEP, (rows[0][0], id, name, channel, json.dumps(notice.summary))


def _messages(notice: Notice, tally: Tally) -> list[tuple[str, str, dict[str, Any]]]:
    """Channel, destination and payload; none where the upload names neither address."""
    messages: list[tuple[str, str, dict[str, Any]]] = []
    if tally["notify_mail"]:
        payload = {"to": tally["notify_mail"], "subject": notice.subject, "text": notice.text, "html": notice.html}
        messages.append(("mail", NOTICE_MAIL, payload))
    if tally["notify_webhook"]:
        messages.append(("webhook", NOTICE_WEBHOOK, {"url": tally["notify_webhook"], "notice": notice.summary}))
    return messages


class _Jobs:
    """`file_job` and its artifacts, as the pattern reads them."""

    def __init__(self, settings: EvidenceSettings) -> None:
        self._settings = settings

    def lock(self, id: UUID, *, is_alone: bool) -> Steps[bool]:
        assert is_alone, "members are reported by record_attempt_1, which locks the job itself"
        rows = yield _LOCK, (id,)
        return bool(rows[0][0])

    def tally(self, id: UUID) -> Steps[Tally]:
        rows = yield _TALLY, (id, self._settings.deadline_seconds, FILES_MAX)
        found: Tally = json.loads(rows[0][0])
        return found

    def passed(self, id: UUID) -> Steps[frozenset[str]]:
        tally = yield from self.tally(id)
        return frozenset([N1] if tally["n1_sent_at"] else [])

    def mark(self, id: UUID, gate: str, tally: Tally) -> Steps[None]:
        yield _PASSED, (id, gate, gate == N2 and _is_overdue(tally))

    def waiting(self, after: UUID | None, limit: int) -> Steps[Sequence[UUID]]:
        rows = yield _WAITING, (after, limit)
        return [row[0] for row in rows]

    def rebuild(self, id: UUID) -> Steps[int]:
        rows = yield _REBUILD, (id,)
        return int(rows[0][0])
