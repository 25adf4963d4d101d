"""What the doctor says of the brokers of an app: each source and each transport that can say something is asked."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from redrive import redact
from redrive.answers import Retryable, Terminal
from redrive.app import App
from redrive.operate.doctor import Point, Verdict
from redrive.ports.broker_risks import ChecksBroker

SECONDS: Final = 15.0  # for one broker
WELL: Final = "its settings keep what it has confirmed"


async def examine_brokers(app: App, *, inbox_seconds: float | None) -> list[Point]:
    """A point for each. What cannot be asked is left out; what does not answer has failed."""
    points = []
    for name, make in _subjects(app):
        try:
            points.append(await _examined(name, make(), inbox_seconds))
        except Exception as error:
            points.append(_failed(name, error))
    return [point for point in points if point is not None]


def _subjects(app: App) -> Iterator[tuple[str, Any]]:
    yield from ((f"source of {name}", one.open_source) for name, one in app.consumers.items())
    for name, destination in app.destinations.items():
        if isinstance(destination.transport, ChecksBroker):
            yield f"broker of {name}", lambda transport=destination.transport: transport


async def _examined(name: str, subject: Any, inbox_seconds: float | None) -> Point | None:
    if not isinstance(subject, ChecksBroker):
        return None
    try:
        async with asyncio.timeout(SECONDS):
            risks = await subject.broker_risks(inbox_seconds=inbox_seconds)
    finally:
        await subject.aclose()  # type: ignore[attr-defined]  # both have it
    if not risks:
        return Point(name=name, verdict=Verdict.OK, detail=getattr(subject, "broker_is_well", WELL))
    return Point(
        name=name,
        verdict=Verdict.WARN,
        detail="; ".join(risk.detail for risk in risks),
        next="; ".join(risk.next for risk in risks),
    )


def _failed(name: str, error: Exception) -> Point:
    why = error.code if isinstance(error, Retryable | Terminal) else redact.error_type(error)
    return Point(
        name=name,
        verdict=Verdict.FAIL,
        detail=f"it does not answer: {why}",
        next="see whether the broker runs, whether the stream exists, and whether the login is accepted",
    )
