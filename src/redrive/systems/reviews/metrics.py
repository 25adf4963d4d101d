"""The metrics of reviews, shown beside the engine's own: what a relay reads from the database (R-10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString

from redrive.kit.metrics import Kind, Metric
from redrive.systems.reviews.taxonomy import CATEGORIES, OTHER

CATEGORY_NAMES: Final = (*(one.name for one in CATEGORIES), OTHER)


def _gauge(name: str, labels: tuple[str, ...], query: LiteralString, meaning: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, meaning=meaning, labels=labels, gauge=name, query=query)


_ALL: Final = (
    _gauge(
        "reviews_dead_letters",
        ("stage", "category"),
        "SELECT stage, category, letters FROM redrive_reviews.count_dead_1()",
        "Dead letters by stage and by row of the failure table.",
    ),
    _gauge(
        "reviews_escalated_letters",
        ("stage", "kind"),
        "SELECT stage, kind, letters FROM redrive_reviews.count_escalated_1()",
        "Dead letters whose replay ended in the same error class.",
    ),
    _gauge(
        "reviews_sent_without_record",
        ("provider", "repair"),
        "SELECT provider, repair, found FROM redrive_reviews.count_violations_1()",
        "Deliveries, of all time, that were marked as sent while the provider had no record, by how they were "
        "repaired.",
    ),
)
METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}
