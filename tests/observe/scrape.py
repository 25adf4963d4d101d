"""Reading an exposition as a scraper does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from redrive.operate.observe.metrics import RelayMetrics, exposition

Labels = tuple[tuple[str, str], ...]


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    """Name of a series to its labels to its value."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def scraped(metrics: RelayMetrics) -> dict[str, dict[Labels, float]]:
    return parsed(exposition(metrics.registry)[0].decode())


def by(series: dict[Labels, float], *names: str) -> dict[tuple[str, ...], float]:
    """The series by the values of these labels; those that are zero are left out."""
    return {tuple(dict(labels)[name] for name in names): value for labels, value in series.items() if value}
