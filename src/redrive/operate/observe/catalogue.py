"""The one table of metrics: name, kind, labels, meaning, and what feeds each. Docs and dashboard are made from it.

A label is a destination, consumer, duty or table, or a word of a closed list: never an id, a tenant, a key or a text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, LiteralString

PREFIX: Final = "redrive_"


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How one event moves a metric.

    amount: the event's value that is added, observed or set; None = 1. words: labels fixed by the event's name; the
    others are values of the event. renamed: label to (value of the event, its translation). sets: the value of a gauge
    without an amount; None = the time.
    """

    amount: str | None = None
    scale: float = 1.0
    words: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    sets: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """events: what moves it; gauge: else the value that one relay reads from the database.

    seeds: its names in the source documents. For systems: only: prefix of the destinations that count. reason: the only
    reason of a gauge that counts. query: SQL that returns subject, reason and value. words: values of labels that are
    known beforehand, so that their series begin at 0.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    events: Mapping[str, Feed] = field(default_factory=dict)
    gauge: str | None = None
    buckets: tuple[float, ...] = ()
    seeds: tuple[str, ...] = ()
    only: str = ""
    reason: str | None = None
    query: LiteralString | None = None
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def is_of(self, destination: str | None) -> bool:
        return destination is None or destination.startswith(self.only)


DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LATENCY_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
OUTCOMES: Final = ("delivered", "closed", "advanced", "retried", "parked", "handed_back")
REASONS: Final = ("dead", "held", "unrecorded")
# Labels whose words are known beforehand: their series begin at 0, so that an alert sees the first increase.
WORDS: Final[Mapping[str, tuple[str, ...]]] = {"outcome": OUTCOMES, "reason": REASONS}


def _counter(name: str, meaning: str, *labels: str, event: str = "", **more: Any) -> Metric:
    """event: the one that is counted; `events` where more is to say."""
    moves: dict[str, Any] = {"events": {event: Feed()}} if event else {}
    return Metric(name=f"{PREFIX}{name}", kind=Kind.COUNTER, meaning=meaning, labels=labels, **moves, **more)


def _gauge(name: str, meaning: str, *labels: str, **more: Any) -> Metric:
    return Metric(name=f"{PREFIX}{name}", kind=Kind.GAUGE, meaning=meaning, labels=labels, **more)


def _read(gauge: str, meaning: str, *labels: str, **more: Any) -> Metric:
    return _gauge(gauge, meaning, *labels, gauge=gauge, **more)


def _histogram(name: str, meaning: str, **more: Any) -> Metric:
    return Metric(name=f"{PREFIX}{name}", kind=Kind.HISTOGRAM, meaning=meaning, labels=("destination",), **more)


# Of one relay process, since it started.
RELAY: Final = (
    _counter(
        "delivery_attempts_total",
        "Attempts that were settled, by what became of them.",
        "destination",
        "outcome",
        seeds=("attempts_total{state}", "Throughput", "FailureRatio", "retry_job_documents_requeued_total"),
        events={f"message.{outcome}": Feed(words={"outcome": outcome}) for outcome in OUTCOMES},
    ),
    _counter(
        "parked_total",
        "Messages that began to wait for a person, by the reason.",
        "destination",
        "reason",
        seeds=("retry_job_documents_max_retries_exceeded_total", "evidence.permanent_failures.count"),
        event="message.parked",
    ),
    _histogram(
        "delivery_duration_seconds",
        "From the beginning of an attempt to its answer.",
        events={f"message.{outcome}": Feed(amount="latency_ms", scale=0.001) for outcome in OUTCOMES[:5]},
        buckets=DURATION_BUCKETS,
        seeds=("dispatch_latency_ms",),
    ),
    _histogram(
        "end_to_end_seconds",
        "From enqueue to delivery, by the database's clock.",
        events={"message.delivered": Feed(amount="age_seconds")},
        buckets=LATENCY_BUCKETS,
    ),
    _counter("claims_total", "Queries for due messages.", seeds=("claim_batches_total",), event="claim.stop"),
    _counter(
        "claimed_messages_total", "Messages that these queries claimed.", events={"claim.stop": Feed(amount="count")}
    ),
    _counter(
        "expired_total",
        "Messages closed because their time was over before they were sent.",
        events={"claim.stop": Feed(amount="expired"), "expire.stop": Feed(amount="count")},
    ),
    _counter(
        "leases_expired_total",
        "Claims that were neither settled nor renewed, taken back by this relay's reaper.",
        seeds=("reaper_requeues_total",),
        events={"reap.stop": Feed(amount="requeued")},
    ),
    _counter(
        "clock_jumps_total", "Jumps of the database's clock that this relay heard of.", event="relay.clock_jumped"
    ),
    _counter(
        "leases_lost_total", "Claims of this relay that another took back.", "destination", event="message.lease_lost"
    ),
    _counter(
        "fenced_writes_total",
        "Outcomes of this relay that were refused because their claim was lost.",
        "destination",
        event="message.refused",
    ),
    _counter(
        "wakeups_total", "Times that a NOTIFY woke this relay.", seeds=("notify_wakeups_total",), event="relay.rung"
    ),
    _counter("notify_reconnects_total", "Times that the listening connection was lost.", event="listener.reconnecting"),
    _counter(
        "unreachable_total",
        "Times that the database did not answer, by operation.",
        "during",
        event="relay.unreachable",
    ),
    _counter(
        "duty_runs_total",
        "Runs of periodic work by this relay.",
        "duty",
        seeds=("retry_job_runs_total",),
        event="duty.stop",
    ),
    _counter(
        "duty_failures_total",
        "Runs of periodic work that raised.",
        "duty",
        seeds=("retry_job_errors_total",),
        event="duty.failed",
    ),
    _counter(
        "breaker_opened_total",
        "Times that this relay found a destination down.",
        "destination",
        seeds=("scheduler.circuit_breaker.open.count",),
        event="breaker.opened",
    ),
    _counter(
        "suspect_processes_total",
        "Processes started to run messages that came back from a crash.",
        event="suspects.spawned",
    ),
    *(
        _counter(f"consumer_{word}_total", meaning, "consumer", events={f"consumer.{word}": feed})
        for word, meaning, feed in (
            ("received", "Messages that this worker received from a broker.", Feed(amount="count")),
            ("processed", "Those of them that it processed.", Feed()),
            ("deferred", "Those of them that it handed to the engine.", Feed()),
            ("reserved", "Those of them that it could neither process nor hand to the engine.", Feed()),
            ("seen", "Those of them that were received before.", Feed()),
            ("given_back", "Those of them that it gave back to the broker.", Feed()),
        )
    ),
    *(
        _gauge(f"consumer_{word}", meaning, "consumer", events={"consumer.progress": Feed(amount=value)})
        for word, meaning, value in (
            ("in_hand", "Messages that this worker has received and not finished.", "in_hand"),
            ("oldest_in_hand_seconds", "For how long it has had the oldest of them.", "oldest_seconds"),
        )
    ),
    _gauge(
        "consumer_connected",
        "1 while the source of this worker's consumer answers.",
        "consumer",
        events={"consumer.looked": Feed(sets=1), "consumer.source_failed": Feed(sets=0)},
    ),
    _gauge(
        "relay_listening",
        "1 while this relay receives NOTIFY; else it only polls.",
        events={
            "listener.listening": Feed(sets=1),
            "listener.reconnecting": Feed(sets=0),
            "listener.deaf": Feed(sets=0),
        },
    ),
    _gauge(
        "relay_last_look_timestamp_seconds",
        "When the loop of this relay last went round.",
        events={"relay.looked": Feed()},
    ),
    _gauge(
        "relay_last_claim_timestamp_seconds", "When the database last answered a claim.", events={"claim.stop": Feed()}
    ),
)

# Of the database, from whichever relay is the reader at present.
DATABASE: Final = (
    _read(
        "messages_pending",
        "Messages that wait for an attempt.",
        "destination",
        seeds=("outbox_pending_depth", "BacklogSize", "evidence.retry.queue.depth"),
    ),
    _read("messages_due", "Those of them that are due.", "destination"),
    _read(
        "retries_scheduled",
        "Those of them that have failed before.",
        "destination",
        seeds=("FailedPending", "retry_job_documents_skipped_backoff_total"),
    ),
    _read("suspects", "Those of them that came back from a crash, and run in a process of their own.", "destination"),
    _read(
        "oldest_pending_age_seconds",
        "How long the oldest message has been due that waits only for a relay.",
        "destination",
        seeds=("oldest_pending_age_seconds", "OldestAgeSeconds"),
    ),
    _read("messages_leased", "Messages that a relay has in hand.", "destination"),
    _read(
        "leases_overdue",
        "Those of them whose claim has run out and was not taken back yet.",
        "destination",
        seeds=("stuck_dispatching_count", "retry_job_stuck_documents"),
    ),
    _read(
        "parked",
        "Messages that wait for a person, by the reason.",
        "destination",
        "reason",
        seeds=("dlq_depth", "retry_job_failed_documents"),
    ),
    _read("parked_oldest_age_seconds", "How long the oldest of them has waited.", "destination", "reason"),
    _read("destination_paused", "1 while it is paused, so that nothing is claimed for it.", "destination"),
    _read("destination_handled", "1 while a live relay handles it.", "destination"),
    _read("breaker_open", "1 while a destination counts as down.", "destination"),
    _read("duty_overdue", "1 for periodic work that has not ended for three times its period.", "duty"),
    _read("duty_failing", "1 for periodic work whose last run raised.", "duty"),
    _read("relays_live", "Relays that were seen in the last 30 seconds."),
    _read("relay_versions", "How many versions of Redrive these are of."),
    _read("relays_not_listening", "Those of them that should receive NOTIFY and do not."),
    _read("workers_live", "Workers that were seen in the last 30 seconds."),
    _read("consumer_handled", "1 while a live worker runs it; known for a week after the last one.", "consumer"),
    _read("replays_running", "Replays that have not ended."),
    _read(
        "lane_violations", "Ordering keys ever found that no relay would have claimed again. Each was a bug of Redrive."
    ),
    _read("oldest_snapshot_age_transactions", "Transactions since the oldest snapshot that keeps dead rows alive."),
    _read("table_dead_rows", "Dead rows in the tables that every message passes.", "table"),
    _read("partitions_ahead_seconds", "For how long from now messages have a partition of their own."),
    _read("capped", "1 when more messages wait, are in hand or parked than are counted: counts are then lower bounds."),
)

# Of the exposition itself.
READER: Final = _gauge("gauges_reader", "1 on the relay that reads the values of the database; one relay does.")
READ_AT: Final = _gauge("gauges_read_timestamp_seconds", "When this relay last read the values of the database.")
INFO: Final = _gauge("build_info", "Always 1; which version this is.", "version")

# Those of a worker: it has no series of a relay, which an alert could take for one that does not listen.
CONSUMER: Final = tuple(metric for metric in RELAY if metric.labels == ("consumer",))

METRICS: Final = (*RELAY, *DATABASE, READER, READ_AT, INFO)
BY_GAUGE: Final[Mapping[str, Metric]] = {metric.gauge: metric for metric in DATABASE if metric.gauge}
