"""Moments and durations in words, as command line and console show them."""

from datetime import UTC, datetime


def moment(value: datetime | None) -> str:
    return "–" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def short_moment(value: datetime | None) -> str:
    return "–" if value is None else f"{value.astimezone(UTC):%m-%d %H:%M:%S}"


def span(seconds: float | None, *, units: int = 2) -> str:
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "0 s"
    rest, parts = int(seconds), []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:units])


def until(value: datetime | None, now: datetime) -> str:
    if value is None:
        return "–"
    seconds = (value - now).total_seconds()
    return f"in {span(seconds, units=1)}" if seconds > 0 else "now"


def ago(value: datetime | None, now: datetime) -> str:
    return "–" if value is None else f"{span(max(0.0, (now - value).total_seconds()), units=1)} ago"
