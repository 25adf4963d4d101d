"""replay: the next step of every replay that is under way: judge what was sent, send more. SQL: verbs/replay.sql."""

from __future__ import annotations

from redrive.events import Events
from redrive.ports import Store

STEP_EVERY_SECONDS = 0.9  # of one replay: a duty that comes every second never finds it too early
UNDER_WAY_MAX = 1000  # messages of one replay that are under way at a time


async def replay(store: Store, *, events: Events | None = None) -> str:
    """A step of each, one short transaction a step."""
    events = events or Events()
    steps = messages = 0
    while True:
        with events.step("run_replay") as added:
            added["count"] = count = await store.run_replay(every_seconds=STEP_EVERY_SECONDS, limit=UNDER_WAY_MAX)
        if count is None:
            return f"{messages} of {steps} replays"
        steps, messages = steps + 1, messages + count
