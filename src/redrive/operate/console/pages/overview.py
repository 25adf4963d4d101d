"""The first page: is it flowing, what is broken, since when, and who looks into it."""

from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from redrive.operate import operations
from redrive.operate.console.calls import Call
from redrive.operate.console.charts import traffic_chart
from redrive.operate.console.rendering import page
from redrive.operate.desk import groups
from redrive.operate.findings import Finding, findings
from redrive.operate.web.tenants import status_for
from redrive.store.reads.dashboard import traffic
from redrive.store.reads.models import GroupFilter
from redrive.store.reads.status import Backlog, Status

GROUPS_SHOWN: Final = 6
STOPPED: Final = frozenset({"unhandled", "paused", "down", "no_tenant", "duty_overdue"})  # work that stands still
OF_PROCESSES: Final = frozenset(
    {"consumer_unhandled", "source_away", "duty_overdue", "relay_stale", "relay_deaf", "old_snapshot", "clock_jumped"}
)


@dataclass(frozen=True, slots=True)
class Health:
    """look: good, warn or bad. why: the most urgent finding, in words."""

    look: str
    word: str
    why: str


async def show(call: Call) -> Response:
    status = status_for(call.principal, await operations.status(call.store))
    found = findings(status)
    wanted = GroupFilter(statuses=groups.NEEDS_REPAIR, limit=GROUPS_SHOWN)
    failing = (await groups.list_groups(call.store, wanted)).rows if call.principal.all_tenants else ()
    causes = sorted((group for group in failing if group.waiting), key=lambda group: -group.waiting)
    return page(
        call,
        "overview.html",
        title="Overview",
        status_=status,
        health=health(status, found, causes=len(causes), alone=not call.principal.all_tenants),
        findings=[(one, place_of(one)) for one in found if one.code != "dead" or not causes],
        groups=causes,
        chart=traffic_chart(await traffic(call.store)),
        sums=sums(status),
        flow=flow,
    )


def health(status: Status, found: list[Finding], *, causes: int, alone: bool = False) -> Health:
    """In one word, and why. alone: of one tenant, who does not see relays."""
    stopped = [finding for finding in found if finding.code in STOPPED]
    if stopped:
        return Health("bad", _how_much(status, stopped), _sentence(stopped[0], len(stopped) - 1))
    if found and all(finding.code == "dead" for finding in found) and causes:
        dead = sum(one.parked["dead"] for one in status.backlog)
        of = f"{dead:,} dead letters of {causes} {'cause' if causes == 1 else 'causes'}"
        return Health("warn", "Flowing, needs attention", f"{of} wait for a person.")
    if found:
        return Health("warn", "Flowing, needs attention", _sentence(found[0], len(found) - 1))
    if not alone and not any(relay.live for relay in status.relays):
        return Health("warn", "No relay is running", "Nothing waits. Start one: redrive relay MODULE:APP")
    return Health("good", "Everything flows", "Nothing needs a person.")


def _how_much(status: Status, stopped: list[Finding]) -> str:
    """One paused destination must not look like an outage of all."""
    places = {finding.subject for finding in stopped} & {one.destination for one in status.backlog}
    if not places or len(places) == len(status.backlog):
        return "Not flowing"
    return f"{len(places)} of {len(status.backlog)} destinations {'does' if len(places) == 1 else 'do'} not flow"


def _sentence(finding: Finding, others: int) -> str:
    more = f"; and {others} more" if others else ""
    return f"{finding.subject}: {finding.detail}{more}"


def sums(status: Status) -> dict[str, int | float | None]:
    ages = [one.oldest_due_seconds for one in status.backlog if one.oldest_due_seconds is not None]
    open_ = {name: sum(getattr(one, name) for one in status.backlog) for name in ("pending", "retrying", "leased")}
    parked = {reason: sum(one.parked[reason] for one in status.backlog) for reason in ("dead", "held", "unrecorded")}
    return {
        "oldest_due_seconds": max(ages, default=None),
        "blocked_keys": sum(status.blocked_keys.values()),
        "relays": sum(relay.live for relay in status.relays),
        "workers": sum(worker.live for worker in status.workers),
        **open_,
        **parked,
    }


def flow(one: Backlog) -> str:
    if one.paused:
        return "paused"
    if not one.handled:
        return "not handled" if one.pending or one.leased else "no relay"
    return {"closed": "flows", "open": "down"}.get(one.breaker, one.breaker)


def place_of(finding: Finding) -> str | None:
    match finding.code:
        case "unhandled" | "paused" | "down":
            return f"/destinations/{finding.subject}"
        case code if code in OF_PROCESSES:
            return "/relays"
        case "keys_halted":
            return "/keys"
        case "replay_stopped" | "replay_waiting":
            return "/replays"
        case "dead" | "held" | "unrecorded":
            return f"/parked/{finding.code}"
    return None
