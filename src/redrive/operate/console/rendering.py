"""Templates to pages. Everything is escaped, an undefined name is an error, and nothing is marked as safe."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from redrive.operate import cursors, time_format
from redrive.operate.console import display
from redrive.operate.console.calls import PERMISSIONS, Call
from redrive.operate.console.files import assets
from redrive.operate.sanitize import one_line, several_lines
from redrive.operate.web.csrf import csrf_field, csrf_token
from redrive.operate.web.dependencies import url

# One colour for each state, by a class of the style sheet; the word is always there too.
_STATES: Final = {
    "good": (
        "delivered", "done", "verified", "resolved", "validated", "live", "flows", "ok", "closed", "ready", "on time",
        "intact", "connected",
    ),
    "wait": ("pending", "waiting", "would", "asked", "not_due", "new"),
    "work": ("leased", "running", "requeued", "in_flight", "triaged", "remediated"),
    "warn": (
        "retrying", "paused", "half_open", "ramping", "warn", "suspect", "snoozed", "stale", "breaker_open", "stopped",
        "no relay", "no worker",
    ),
    "bad": (
        "dead", "open", "regressed", "failed", "fail", "refused", "down", "not handled", "overdue", "broken", "lost",
        "not_found", "away",
    ),
    "held": ("held",),
    "late": ("unrecorded",),
}  # fmt: skip
LOOKS: Final = {state: look for look, states in _STATES.items() for state in states}
NAVIGATION: Final = {
    "": (("/", "Overview", "pulse", "o"),),
    "Repair": (
        ("/groups", "Failure groups", "layers", "g"),
        ("/parked/dead", "Parked", "inbox", "d"),
        ("/replays", "Replays", "replay", "r"),
        ("/keys", "Blocked keys", "key", "k"),
    ),
    "Look up": (
        ("/messages", "Messages", "list", "m"),
        ("/destinations", "Destinations", "target", "t"),
        ("/relays", "Relays", "server", "s"),
        ("/audit", "Audit", "book", "a"),
    ),
}
EVERYWHERE: Final = frozenset({"/groups", "/replays", "/destinations", "/relays", "/audit"})  # what has no tenant


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("redrive.operate.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": lambda value: f"{value:,}",
        "words": lambda value: str(value).replace("_", " "),
        "line": one_line,
        "lines": several_lines,
        "moment": time_format.moment,
        "span": time_format.span,
        "iso": _iso,
        "look": lambda state: LOOKS.get(str(state), "idle"),
        "percent": percent,
        "cursor": cursors.encode,
        "messages": lambda count: f"{count:,} {'message' if count == 1 else 'messages'}",
    }
    made.globals |= {
        "asset": lambda name: assets()[name].name,
        "ago": time_format.ago,
        "until": time_format.until,
        "permissions": {permission.value: (permission, words) for permission, words in PERMISSIONS.items()},
        "zip": zip,
    }
    return made


def page(call: Call, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
    context = {
        "call": call,
        "sections": _sections(call),
        "url": call.url,
        "here": call.here,
        "me": call.principal,
        "title": title,
        "active": call.request.scope["path"].removeprefix(call.prefix) or "/",
        "csrf_field": csrf_field(call.request),
        "csrf_token": csrf_token(call.request),
        "new_key": call.jobs.new_token,
        "job": call.jobs.find(call.query.get("job"), call.principal.name),
        **values,
    }
    return HTMLResponse(environment().get_template(template).render(context), status_code=status)


def _sections(call: Call) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    alone = not call.principal.all_tenants
    sections = {
        name: [one for one in links if not (alone and one[0] in EVERYWHERE)] for name, links in NAVIGATION.items()
    }
    for name, system in call.systems.items():
        views = [(key, view) for key, view in system.views.items() if not (alone and view.all_tenants)]
        sections[name.capitalize()] = [(f"/systems/{name}/{key}", view.title, "card", "") for key, view in views]
    return [(name, links) for name, links in sections.items() if links]


def percent(share: float) -> str:
    """Never 100 % unless it is all, and never 0 % unless it is none."""
    if 0.995 <= share < 1:
        return "99 %"
    if 0 < share < 0.005:
        return "under 1 %"
    return f"{share:.0%}".replace("%", " %")


def _iso(value: datetime | None) -> str:
    return "" if value is None else value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def bare_page(request: Request, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
    """A page without the frame: for who is not let in yet, or not there."""
    context = {"url": lambda path: url(request, path), "title": title, "csrf_field": csrf_field(request), **values}
    return HTMLResponse(environment().get_template(template).render(context), status_code=status)


def csv_file(name: str, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Response:
    """A download for a spreadsheet, which must not run any cell of it."""
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(display.cell(time_format.moment(one) if isinstance(one, datetime) else one) for one in row)
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(file.getvalue(), media_type="text/csv", headers=headers)
