"""Charts as plain shapes: numbers in, coordinates out. The templates draw them as SVG, without script and style."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from redrive.operate.time_format import span
from redrive.store.reads.dashboard import RetryDelay, Slot, Traffic

WIDE, NARROW = 1060, 620  # as wide as the page, or beside something
HEIGHT: Final = 150
BASE: Final = 20  # below the bars, for the times
LEFT: Final = 36  # beside the bars, for the numbers
KINDS: Final = ("delivered", "retried", "parked")


class Bar(NamedTuple):
    kind: str
    x: float
    y: float
    width: float
    height: float


class Tick(NamedTuple):
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart of stacked bars. labels: one a slot, for those who hover or listen."""

    bars: Sequence[Bar]
    slots: Sequence[tuple[float, float, str]]
    lines: Sequence[Tick]
    times: Sequence[Tick]
    totals: dict[str, int]
    took: str
    width: int
    height: int = HEIGHT
    base: float = HEIGHT - BASE


def traffic_chart(traffic: Traffic, *, width: int = WIDE) -> Bars:
    count = round((traffic.until - traffic.since).total_seconds() / traffic.slot_seconds)
    by_slot = {min(slot.slot, count - 1): slot for slot in traffic.slots}
    most = nice_top(max((slot.delivered + slot.retried + slot.parked for slot in by_slot.values()), default=0))
    room, step = HEIGHT - BASE - 8, (width - LEFT) / count
    bars: list[Bar] = []
    slots: list[tuple[float, float, str]] = []
    for number in range(count):
        x, floor = LEFT + number * step, float(HEIGHT - BASE)
        slot = by_slot.get(number)
        began = traffic.since + timedelta(seconds=number * traffic.slot_seconds)
        slots.append((round(x, 2), round(step, 2), _label(began, slot)))
        for kind in KINDS if slot else ():
            height = getattr(slot, kind) / most * room
            if height:
                floor -= height
                bars.append(
                    Bar(kind, round(x + step * 0.14, 2), round(floor, 2), round(step * 0.72, 2), round(height, 2))
                )
    lines = [Tick(round(HEIGHT - BASE - share * room, 2), short(most * share)) for share in (0.5, 1.0)]
    times = [
        Tick(
            round(LEFT + share * (width - LEFT), 2), f"{traffic.since + share * (traffic.until - traffic.since):%H:%M}"
        )
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    totals = {kind: sum(getattr(slot, kind) for slot in traffic.slots) for kind in KINDS}
    return Bars(bars, slots, lines, times, totals, _took(traffic.slots), width)


def _took(slots: Sequence[Slot]) -> str:
    last = max((slot for slot in slots if slot.median_ms is not None), default=None)
    if last is None or last.median_ms is None or last.slow_ms is None:
        return "nothing was sent"
    return f"{milliseconds(last.median_ms)} p50, {milliseconds(last.slow_ms)} p95"


def milliseconds(value: float) -> str:
    return "< 1 ms" if value < 1 else span(value / 1000, units=1)


def _label(began: datetime, slot: Slot | None) -> str:
    if slot is None:
        return f"{began:%H:%M} UTC: nothing"
    said = ", ".join(f"{getattr(slot, kind):,} {kind}" for kind in KINDS if getattr(slot, kind))
    return f"{began:%H:%M} UTC: {said or 'nothing'}"


def nice_top(most: float) -> float:
    if most <= 1:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(most))
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= most)


def short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Curve:
    points: str
    area: str
    marks: Sequence[tuple[float, float, str, str]]
    width: int = 560
    height: int = 150


def retry_curve(delays: Sequence[RetryDelay]) -> Curve | None:
    if not delays:
        return None
    width, left, base = 560, 12, 128
    top = math.log10(max(1.0, *(one.longest_seconds for one in delays)) + 1)
    step = (width - 2 * left) / max(1, len(delays) - 1)
    marks = [
        (
            round(left + at * step, 1),
            round(base - math.log10(one.median_seconds + 1) / top * (base - 24), 1),
            span(one.median_seconds, units=1),
            f"after failure {one.spent}: {span(one.median_seconds)} as a rule, {span(one.longest_seconds)} at most",
        )
        for at, one in enumerate(delays)
    ]
    points = " ".join(f"{x},{y}" for x, y, _, _ in marks)
    return Curve(points, f"{marks[0][0]},{base} {points} {marks[-1][0]},{base}", marks)


def shares(values: Sequence[tuple[str, int]], *, width: float = 100.0) -> list[tuple[str, float, float]]:
    """Parts of one bar: kind, where it begins, how wide it is."""
    total = sum(count for _, count in values)
    parts: list[tuple[str, float, float]] = []
    at = 0.0
    for kind, count in values:
        wide = count / total * width if total else 0.0
        if wide:
            parts.append((kind, round(at, 3), round(wide, 3)))
        at += wide
    return parts
