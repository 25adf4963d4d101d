"""The metrics of payments (P-06), shown beside the engine's own.

Claims, wake-ups and the reaper are of the whole relay; the rest is of the rails alone.
"""

from collections.abc import Mapping
from typing import Any, Final

from redrive.kit.metrics import Feed, Kind, Metric
from redrive.systems.payments.names import DESTINATION_PREFIX

STATES: Final = ("DISPATCHING", "DISPATCHED", "RETRYABLE", "FAILED", "HELD", "UNRECORDED", "ZOMBIE_REQUEUE")
LATENCY_BUCKETS: Final = (5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 30_000.0)
_PARKED: Final = {"dead": "FAILED", "held": "HELD", "unrecorded": "UNRECORDED"}
_ANSWERED: Final = ("delivered", "closed", "advanced", "retried", "parked")


def _gauge(name: str, gauge: str, meaning: str, **options: Any) -> Metric:
    labels = ("destination",)
    return Metric(
        name=name, kind=Kind.GAUGE, meaning=meaning, labels=labels, gauge=gauge, only=DESTINATION_PREFIX, **options
    )


def _counter(name: str, meaning: str, **options: Any) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, meaning=meaning, only=DESTINATION_PREFIX, **options)


_ALL: Final = (
    _gauge("outbox_pending_depth", "messages_pending", "Payments that wait for their turn or for a retry."),
    _gauge(
        "oldest_pending_age_seconds",
        "oldest_pending_age_seconds",
        "How long the oldest payment has been due that needs nothing but a relay.",
    ),
    _gauge("dlq_depth", "parked", "Payments that were given up: terminal, or out of attempts.", reason="dead"),
    _gauge("stuck_dispatching_count", "leases_overdue", "Payments in the hands of a relay that is gone."),
    _counter("notify_wakeups_total", "Times that a NOTIFY woke this relay.", events={"relay.rung": Feed()}),
    _counter("claim_batches_total", "Looks of this relay for due messages.", events={"claim.stop": Feed()}),
    _counter(
        "reaper_requeues_total",
        "Claims that this relay's reaper took back.",
        events={"reap.stop": Feed(amount="requeued")},
    ),
    _counter(
        "attempts_total",
        "Attempts by their state in the archive; DISPATCHING and ZOMBIE_REQUEUE are of the whole relay.",
        labels=("state",),
        words={"state": STATES},
        events={
            "claim.stop": Feed(amount="count", words={"state": "DISPATCHING"}),
            "message.delivered": Feed(words={"state": "DISPATCHED"}),
            "message.retried": Feed(words={"state": "RETRYABLE"}),
            "message.parked": Feed(renamed={"state": ("reason", _PARKED)}),
            "reap.stop": Feed(amount="requeued", words={"state": "ZOMBIE_REQUEUE"}),
        },
    ),
    Metric(
        name="dispatch_latency_ms",
        kind=Kind.HISTOGRAM,
        meaning="Milliseconds from the beginning of an attempt to the rail's answer.",
        labels=("destination",),
        events={f"message.{outcome}": Feed(amount="latency_ms") for outcome in _ANSWERED},
        buckets=LATENCY_BUCKETS,
        only=DESTINATION_PREFIX,
    ),
    Metric(
        name="payments_findings",
        kind=Kind.GAUGE,
        meaning="What does not agree between intents, archive and the rails' statements, by its kind.",
        labels=("rail", "kind"),
        gauge="payments_findings",
        query="SELECT rail_type, kind, findings FROM redrive_payments.count_findings_1()",
    ),
)
METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}
