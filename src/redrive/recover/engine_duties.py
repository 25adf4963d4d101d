"""The engine's own duties: each runs once, in short transactions, and says what it did.

SQL: `store/sql/verbs/<duty>.sql` (`groups.sql`, `lanes.sql`, `inbox.sql`, `partitions.sql` for fold_failures,
mend_lanes, forget_inbox, and partitions and retire).
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from redrive.app import Duty
from redrive.events import Events
from redrive.ports import Reaped, Store

BATCH: Final = 500
FOLD_BATCH: Final = 5000
LANES_AT_ONCE: Final = 2_000
SLICES_MAX: Final = 50
STEP_EVERY_SECONDS: Final = 0.9  # of one replay: a duty that runs every second never finds it too early
UNDER_WAY_MAX: Final = 1000  # messages of one replay that are under way at a time
HOUR_SECONDS: Final = 3600.0
INBOX_EVERY_SECONDS: Final = 60.0
INBOX_BATCH: Final = 2000
INBOX_BATCHES_MAX: Final = 100  # of one run: at most 200,000 rows a minute
DAY_SECONDS: Final = 86_400
FORGET_RELAYS_AFTER_SECONDS: Final = 86_400.0


def engine_duties(
    *,
    reap_every_seconds: float,
    partition_days: float,
    partitions_ahead: int,
    retention_days: float | None,
    inbox_retention_days: float | None = None,
    expected_time: Callable[[], Awaitable[datetime]] | None = None,
    events: Events | None = None,
) -> list[Duty]:
    """retention_days, inbox_retention_days: None = nothing is retired, or forgotten.

    expected_time: the database's time by the relay's reckoning; nothing is reaped while its clock says otherwise.
    """
    events = events or Events()
    duties: dict[str, tuple[float, Callable[..., Awaitable[object]]]] = {
        "reap": (reap_every_seconds, partial(_reap, expected=expected_time)),
        "expire": (5.0, _expire),
        "mend_lanes": (60.0, mend_lanes),
        "fold_failures": (5.0, fold_failures),
        "replay": (1.0, replay),
        "vacuum": (5.0, _vacuum),
        "partitions": (HOUR_SECONDS, partial(_make_partitions, days=partition_days, ahead=partitions_ahead)),
        "forget_relays": (HOUR_SECONDS, _forget_relays),
    }
    if retention_days is not None:
        duties["retire"] = (HOUR_SECONDS, partial(_retire, days=retention_days))
    if inbox_retention_days is not None:
        forget = partial(forget_inbox, after_seconds=inbox_retention_days * DAY_SECONDS)
        duties["forget_inbox"] = (INBOX_EVERY_SECONDS, forget)
    return [
        Duty(name=name, every_seconds=every_seconds, run_once=partial(run_once, events=events))
        for name, (every_seconds, run_once) in duties.items()
    ]


async def _reap(store: Store, *, expected: Callable[[], Awaitable[datetime]] | None, events: Events) -> Reaped:
    """Claims whose worker is gone come back pending, in doubt, each a suspect (G-14, G-18)."""
    requeued = 0
    while True:
        with events.step("reap") as added:
            reaped = await store.reap(limit=BATCH, expected=None if expected is None else await expected())
            added["requeued"] = reaped.requeued
        if reaped.unconfirmed:
            return reaped
        requeued += reaped.requeued
        if reaped.requeued < BATCH:
            return Reaped(requeued)


async def _expire(store: Store, *, events: Events) -> int:
    """Closes pending messages whose time has passed, also where nothing claims them."""

    async def once() -> int:
        with events.step("expire") as added:
            added["count"] = count = await store.expire(limit=BATCH)
        return count

    return await _until_fewer_than(BATCH, once)


async def fold_failures(store: Store, *, batch: int = FOLD_BATCH, events: Events) -> str:
    """Counts what was parked since the last run into its failure groups."""

    async def once() -> int:
        with events.step("fold_failures") as added:
            added["count"] = count = await store.fold_failures(limit=batch)
        return count

    return f"{await _until_fewer_than(batch, once)} counted"


async def _until_fewer_than(batch: int, once: Callable[[], Awaitable[int]]) -> int:
    total = 0
    while True:
        count = await once()
        total += count
        if count < batch:
            return total


async def mend_lanes(store: Store, *, lanes: int = LANES_AT_ONCE, slices: int = SLICES_MAX, events: Events) -> str:
    """Looks at ordering keys that no claim would look at again; the next run goes on where this one ends.

    There are none (`store/sql/LANES.md` says why). One that is found is a bug of the engine: healed, counted and
    reported.
    """
    mended = looked_at = 0
    is_over = False
    for _ in range(slices):
        with events.step("mend_lanes") as added:
            one = await store.mend_lanes(lanes=lanes)
            added["count"] = one.mended
        mended += one.mended
        looked_at += one.looked_at
        is_over = one.is_over
        if is_over:
            break
    if mended:
        events.emit("lanes.mended", count=mended)
    return f"{mended} mended" if is_over else f"{mended} mended; {looked_at} lanes looked at, the next run goes on"


async def replay(store: Store, *, events: Events) -> str:
    """The next step of every replay that is under way: judge what was sent, send more."""
    steps = messages = 0
    while True:
        with events.step("run_replay") as added:
            added["count"] = count = await store.run_replay(every_seconds=STEP_EVERY_SECONDS, limit=UNDER_WAY_MAX)
        if count is None:
            return f"{messages} of {steps} replays"
        steps, messages = steps + 1, messages + count


async def _vacuum(store: Store, *, events: Events) -> str:
    """Vacuums the busy tables where autovacuum looks too seldom: `store/runtime/vacuum.py`."""
    with events.step("vacuum") as added:
        added["result"] = result = await store.vacuum()
    return result


async def _make_partitions(store: Store, *, days: float, ahead: int, events: Events) -> int:
    with events.step("make_partitions"):
        return await store.make_partitions(width_seconds=days * DAY_SECONDS, ahead=ahead)


async def _retire(store: Store, *, days: float, events: Events) -> str:
    """Partitions whose retention is over. One with an open message stays until a later run."""
    before = await store.now() - timedelta(days=days)
    with events.step("retire"):
        results = Counter([await store.retire(start) for start, end in await store.ranges() if end <= before])
    return ", ".join(f"{count} {result}" for result, count in sorted(results.items())) or "none"


async def forget_inbox(store: Store, *, after_seconds: float, batch: int = INBOX_BATCH, events: Events) -> str:
    """Rows of the inbox whose retention is over: what the broker redelivers after that is processed again."""
    forgotten = 0
    for _ in range(INBOX_BATCHES_MAX):
        with events.step("forget_inbox") as added:
            added["count"] = count = await store.forget_inbox(after_seconds=after_seconds, limit=batch)
        forgotten += count
        if count < batch:
            break
    return f"{forgotten} forgotten"


async def _forget_relays(store: Store, *, events: Events) -> int:
    with events.step("forget_relays"):
        return await store.forget_relays(after_seconds=FORGET_RELAYS_AFTER_SECONDS)
