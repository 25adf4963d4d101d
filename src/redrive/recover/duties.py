"""The one loop that all duties share: due, elected, run, noted (G-17).

Every relay runs this loop; the database lets one of them begin a duty at a time. A duty that raises is noted and tried
again when it is next due; it never takes the relay down. The engine's own duties are declared here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial

from redrive import redact
from redrive.app import Duty
from redrive.errors import OperatorError
from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import Clock, Store, TransientFailure
from redrive.recover.expire import expire
from redrive.recover.fold_failures import fold_failures
from redrive.recover.mend_lanes import mend_lanes
from redrive.recover.reap import reap
from redrive.recover.replay import replay
from redrive.recover.retire import make_partitions, retire
from redrive.recover.vacuum import vacuum

RESULT_MAX = 200
EXPIRE_EVERY_SECONDS = 5.0
MEND_LANES_EVERY_SECONDS = 60.0
VACUUM_EVERY_SECONDS = 5.0
FOLD_FAILURES_EVERY_SECONDS = 5.0
REPLAY_EVERY_SECONDS = 1.0
HOUR_SECONDS = 3600.0
FORGET_RELAYS_AFTER_SECONDS = 86_400.0
STOP_SECONDS = 5.0  # a stop waits so long for duties that ignore it, or for a database that does not answer
UNREACHABLE_SECONDS_MAX = 5.0  # a database that was away is asked again soon, however rare the duty


def engine_duties(
    *,
    reap_every_seconds: float,
    partition_days: float,
    partitions_ahead: int,
    retention_days: float | None,
    expected_time: Callable[[], Awaitable[datetime]] | None = None,
    events: Events | None = None,
) -> list[Duty]:
    """What keeps the engine itself in order. retention_days: None = nothing is ever retired.

    expected_time: what the database's clock says by the relay's reckoning; nothing is reaped while it says otherwise.
    """
    events = events or Events()
    making = partial(make_partitions, days=partition_days, ahead=partitions_ahead, events=events)
    reaping = partial(reap, expected=expected_time, events=events)
    forgetting = partial(_forget_relays, events=events)
    folding = partial(fold_failures, events=events)
    duties = [
        Duty(name="reap", every_seconds=reap_every_seconds, run_once=reaping),
        Duty(name="expire", every_seconds=EXPIRE_EVERY_SECONDS, run_once=partial(expire, events=events)),
        Duty(name="mend_lanes", every_seconds=MEND_LANES_EVERY_SECONDS, run_once=partial(mend_lanes, events=events)),
        Duty(name="fold_failures", every_seconds=FOLD_FAILURES_EVERY_SECONDS, run_once=folding),
        Duty(name="replay", every_seconds=REPLAY_EVERY_SECONDS, run_once=partial(replay, events=events)),
        Duty(name="vacuum", every_seconds=VACUUM_EVERY_SECONDS, run_once=partial(vacuum, events=events)),
        Duty(name="partitions", every_seconds=HOUR_SECONDS, run_once=making),
        Duty(name="forget_relays", every_seconds=HOUR_SECONDS, run_once=forgetting),
    ]
    if retention_days is not None:
        retiring = partial(_retire, days=retention_days, events=events)
        duties.append(Duty(name="retire", every_seconds=HOUR_SECONDS, run_once=retiring))
    return duties


async def run_duties(store: Store, duties: Iterable[Duty], *, worker: WorkerId, clock: Clock, events: Events) -> None:
    """Until cancelled. Each duty that runs then is ended first, so that another relay may take it at once; one that
    does not end within `STOP_SECONDS` stays held until its holder is taken for dead."""
    running = [
        asyncio.create_task(_run_duty(store, duty, worker=worker, clock=clock, events=events)) for duty in duties
    ]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        await asyncio.gather(*running)  # raises it
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=STOP_SECONDS)


async def _run_duty(store: Store, duty: Duty, *, worker: WorkerId, clock: Clock, events: Events) -> None:
    while True:
        pause_seconds = duty.every_seconds
        try:
            await run_if_due(store, duty, worker=worker, events=events)
        except TransientFailure:
            events.emit("relay.unreachable", during="duty", tries=0)
            pause_seconds = min(pause_seconds, UNREACHABLE_SECONDS_MAX)
        await clock.sleep(pause_seconds)


async def run_if_due(store: Store, duty: Duty, *, worker: WorkerId, events: Events) -> bool:
    """Run the duty once if it is due and no other relay runs it. True when it ran."""
    with events.step("begin_duty", duty=duty.name) as added:
        added["begun"] = begun = await store.begin_duty(duty.name, worker, every_seconds=duty.every_seconds)
    if not begun:
        return False
    end = partial(_end, store, duty, worker, events=events)
    try:
        try:
            result = await _result(store, duty, events=events)
        except TransientFailure:
            await end(result="failed")
            raise
        await end(result=result)
    except asyncio.CancelledError:  # also while it was being ended
        with contextlib.suppress(TransientFailure):  # in place of the cancellation it would be tried again, for ever
            await end(result="stopped")
        raise
    return True


async def _result(store: Store, duty: Duty, *, events: Events) -> str:
    """What the duty said of its run, or how it failed."""
    try:
        with events.step("duty", duty=duty.name) as added:
            added["result"] = result = redact.storable(await duty.run_once(store), limit=RESULT_MAX)
            return result
    except TransientFailure:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        events.emit("duty.failed", duty=duty.name, error=redact.error_type(error))
        # What a login lacks, or what stands in the way, is a sentence of ours, without data: it says what helps.
        said = str(error) if isinstance(error, OperatorError) else redact.error_type(error)
        return redact.storable(f"failed: {said}", limit=RESULT_MAX)


async def _end(store: Store, duty: Duty, worker: WorkerId, *, result: str, events: Events) -> None:
    with events.step("end_duty", duty=duty.name):
        await store.end_duty(duty.name, worker, result=result)


async def _forget_relays(store: Store, *, events: Events) -> int:
    with events.step("forget_relays"):
        return await store.forget_relays(after_seconds=FORGET_RELAYS_AFTER_SECONDS)


async def _retire(store: Store, *, days: float, events: Events) -> str:
    retired = await retire(store, retention_days=days, now=await store.now(), events=events)
    return ", ".join(f"{count} {result}" for result, count in sorted(retired.items())) or "none"
