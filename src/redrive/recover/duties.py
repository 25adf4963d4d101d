"""The loop of all duties (G-17).

Every relay runs it; the database lets one relay at a time begin a duty. A duty that raises is tried again when it is
next due; it never ends the relay. The engine's own duties are in `engine_duties.py`.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial

from redrive import redact
from redrive.app import Duty
from redrive.errors import OperatorError
from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import Clock, Store, TransientFailure

RESULT_MAX = 200
STOP_SECONDS = 5.0  # a stop waits so long for duties that ignore it, or for a database that does not answer
UNREACHABLE_SECONDS_MAX = 5.0  # a database that was away is asked again soon, however rare the duty


async def run_duties(store: Store, duties: Iterable[Duty], *, worker: WorkerId, clock: Clock, events: Events) -> None:
    """Until cancelled. A running duty is ended first, so that another relay may begin it at once; one that does not end
    within `STOP_SECONDS` can begin again when its relay is taken for dead."""
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
    """True when it ran: it was due and no other relay ran it."""
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
    try:
        with events.step("duty", duty=duty.name) as added:
            added["result"] = result = redact.storable(await duty.run_once(store), limit=RESULT_MAX)
            return result
    except TransientFailure:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        events.emit("duty.failed", duty=duty.name, error=redact.error_type(error))
        # The text of an OperatorError has no data in it, and says what helps.
        said = str(error) if isinstance(error, OperatorError) else redact.error_type(error)
        return redact.storable(f"failed: {said}", limit=RESULT_MAX)


async def _end(store: Store, duty: Duty, worker: WorkerId, *, result: str, events: Events) -> None:
    with events.step("end_duty", duty=duty.name):
        await store.end_duty(duty.name, worker, result=result)
