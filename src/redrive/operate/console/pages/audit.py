"""What operators did, newest first, and whether the record is as it was written."""

import json
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from starlette.responses import Response

from redrive.operate.console.calls import Call
from redrive.operate.console.rendering import csv_file, page
from redrive.operate.desk import audit
from redrive.operate.web.principal import Permission
from redrive.store.reads.models import LIMIT_MAX, AuditEntry

PAGE: Final = 500  # acts; those of one form are one row
PLAIN: Final = ("id", "at", "actor", "act", "subject", "reason")  # columns of the file, before the change itself


async def list_(call: Call) -> Response:
    call.require(Permission.AUDIT)
    subject, before = call.given("subject"), call.position("before", int)
    found = await audit.list_audit(call.store, subject=subject, before=before, limit=PAGE)
    verified = await audit.verify(call.store) if call.given("verify") else None
    return page(
        call,
        "audit.html",
        title="Audit",
        found=found,
        runs=runs(found.rows),
        subject=subject,
        verified=verified,
        brief=brief,
        about=about,
    )


def runs(entries: Sequence[AuditEntry]) -> list[tuple[AuditEntry, int]]:
    """Acts in a row by one person, of one kind and for one reason: the latest of them, and how many they are."""
    same = groupby(entries, key=lambda one: (one.actor, one.act, one.reason))
    return [(found[0], len(found)) for found in (list(run) for _, run in same)]


async def export(call: Call) -> Response:
    call.require(Permission.AUDIT)
    found = await audit.list_audit(call.store, subject=call.given("subject"), limit=LIMIT_MAX)
    rows = ([*(getattr(one, name) for name in PLAIN), brief(one.before), brief(one.after)] for one in found.rows)
    return csv_file("audit", (*PLAIN, "before", "after"), rows)


_SUBJECT: Final = re.compile(r"(?:(\w+) )?([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_PLACES: Final = {"message": "/messages/", "replay": "/replays/", "group": "/groups/"}


def about(subject: str) -> tuple[str, str, str | None]:
    """What an act was about: the kind of thing, a short name, and its page if it has one."""
    found = _SUBJECT.fullmatch(subject)
    if found is None:
        return "", subject, None
    kind, id_ = found[1] or "message", found[2]
    return kind, f"…{id_[-12:]}", f"{_PLACES[kind]}{id_}" if kind in _PLACES else None


def brief(value: Any) -> str:
    if not isinstance(value, dict):
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    return ", ".join(
        f"{name} {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}"
        for name, one in value.items()
        if one is not None
    )
