"""The alert rules, with what makes each fire and clear: `python deploy/alerts.py` writes deploy/prometheus/.

One declaration gives the rule (`alerts.yml`) and its unit test (`alerts.test.yml`, for promtool). Each alert has a page
in docs/runbooks/. Thresholds are starting points: copy the file and change them. Those of payments are arguments:
`python deploy/alerts.py oldest_pending_seconds=120` prints the rules with it, and writes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RUNBOOKS = "docs/runbooks"  # of this repository; put your own address before it
DASHBOARD = "/d/redrive-overview"
PAGE, TICKET = "page", "ticket"
HEADER = "# Made by deploy/alerts.py; change it there, or copy this file.\n"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One rule, and the series that make it fire at minute `fires` and be over at minute `clears`.

    series: name to values, as promtool writes them; a minute each. labels: of the alert that is expected.
    """

    name: str
    severity: str
    expr: str
    summary: str
    description: str
    series: dict[str, str]
    fires: int
    clears: int
    after: str = "0m"
    labels: dict[str, str] = field(default_factory=dict)


ERP = {"destination": "erp"}

ALERTS = (
    Alert(
        name="RedriveRelayStalled",
        severity=PAGE,
        after="2m",
        expr="time() - redrive_relay_last_look_timestamp_seconds > 90",
        summary="A relay stands still",
        description="The loop of {{ $labels.instance }} has not gone round for over 90 seconds.",
        series={'redrive_relay_last_look_timestamp_seconds{instance="a"}': "0+60x4 240x10 900+60x10"},
        fires=10,
        clears=17,
        labels={"instance": "a"},
    ),
    Alert(
        name="RedriveNoRelay",
        severity=PAGE,
        after="2m",
        expr="absent(redrive_gauges_reader == 1)",
        summary="No relay reads the database",
        description="No relay that is scraped holds the duty of reading the database: none runs, or none is scraped.",
        series={'redrive_gauges_reader{instance="a"}': "1x4 0x9 1x10"},
        fires=10,
        clears=16,
    ),
    Alert(
        name="RedriveOldestPending",
        severity=PAGE,
        after="5m",
        expr="max by (destination) (redrive_oldest_pending_age_seconds) > 60",
        summary="Messages wait too long",
        description="The oldest due message of {{ $labels.destination }} has waited for over a minute.",
        series={'redrive_oldest_pending_age_seconds{destination="erp"}': "0x3 120x9 0x10"},
        fires=11,
        clears=14,
        labels=ERP,
    ),
    Alert(
        name="RedriveUnhandledDestination",
        severity=PAGE,
        after="5m",
        expr="max by (destination) (redrive_messages_pending) > 0"
        " and on (destination) max by (destination) (redrive_destination_handled) == 0",
        summary="No relay delivers for a destination",
        description="Messages wait for {{ $labels.destination }}, and no live relay handles it.",
        series={
            'redrive_messages_pending{destination="erp"}': "5x25",
            'redrive_destination_handled{destination="erp"}': "1x3 0x9 1x10",
        },
        fires=11,
        clears=14,
        labels=ERP,
    ),
    Alert(
        name="RedriveConsumerUnhandled",
        severity=PAGE,
        after="5m",
        expr="max by (consumer) (redrive_consumer_handled) == 0",
        summary="No worker runs a consumer",
        description="No live worker consumes for {{ $labels.consumer }}; the broker keeps its messages meanwhile.",
        series={'redrive_consumer_handled{consumer="billing"}': "1x3 0x9 1x10"},
        fires=11,
        clears=14,
        labels={"consumer": "billing"},
    ),
    Alert(
        name="RedriveSourceAway",
        severity=PAGE,
        after="5m",
        expr="max by (instance, consumer) (redrive_consumer_connected) == 0",
        summary="A broker does not answer a worker",
        description="The source of {{ $labels.consumer }} has not answered {{ $labels.instance }} for five minutes.",
        series={'redrive_consumer_connected{instance="a",consumer="billing"}': "1x3 0x9 1x10"},
        fires=11,
        clears=14,
        labels={"instance": "a", "consumer": "billing"},
    ),
    Alert(
        name="RedriveDeadLetter",
        severity=TICKET,
        expr='sum by (destination) (increase(redrive_parked_total{reason="dead"}[15m])) > 0',
        summary="A message is dead",
        description="In the last 15 minutes a message for {{ $labels.destination }} was given up.",
        series={'redrive_parked_total{destination="erp",reason="dead"}': "0x5 1x40"},
        fires=8,
        clears=30,
        labels=ERP,
    ),
    Alert(
        name="RedriveDeadLettersGrow",
        severity=PAGE,
        expr='sum by (destination) (increase(redrive_parked_total{reason="dead"}[15m])) > 5',
        summary="Messages die in numbers",
        description="More than five messages for {{ $labels.destination }} were given up in 15 minutes.",
        series={'redrive_parked_total{destination="erp",reason="dead"}': "0x5 2+2x9 20x40"},
        fires=12,
        clears=40,
        labels=ERP,
    ),
    Alert(
        name="RedriveHeld",
        severity=PAGE,
        after="5m",
        expr='sum by (destination) (redrive_parked{reason="held"}) > 0',
        summary="A send may have had its effect, and cannot be looked up",
        description="Messages for {{ $labels.destination }} are in doubt, and only a person can say more.",
        series={'redrive_parked{destination="erp",reason="held"}': "0x3 1x9 0x10"},
        fires=11,
        clears=14,
        labels=ERP,
    ),
    Alert(
        name="RedriveUnrecorded",
        severity=PAGE,
        after="5m",
        expr='sum by (destination) (redrive_parked{reason="unrecorded"}) > 0',
        summary="It was answered, and could not be recorded",
        description="The record of {{ $labels.destination }} failed; messages were delivered and are not recorded.",
        series={'redrive_parked{destination="erp",reason="unrecorded"}': "0x3 1x9 0x10"},
        fires=11,
        clears=14,
        labels=ERP,
    ),
    Alert(
        name="RedriveParkedTooLong",
        severity=TICKET,
        after="5m",
        expr="max by (destination, reason) (redrive_parked_oldest_age_seconds) > 86400",
        summary="A parked message has waited for a day",
        description="A {{ $labels.reason }} message for {{ $labels.destination }} has waited for a person for a day.",
        series={'redrive_parked_oldest_age_seconds{destination="erp",reason="dead"}': "0x3 90000x9 0x10"},
        fires=11,
        clears=14,
        labels={**ERP, "reason": "dead"},
    ),
    Alert(
        name="RedriveBreakerOpen",
        severity=TICKET,
        after="10m",
        expr="max by (destination) (redrive_breaker_open) == 1",
        summary="A destination has been down for ten minutes",
        description="{{ $labels.destination }} does not answer; its messages wait.",
        series={'redrive_breaker_open{destination="erp"}': "0x3 1x14 0x10"},
        fires=16,
        clears=19,
        labels=ERP,
    ),
    Alert(
        name="RedriveRetryStorm",
        severity=TICKET,
        after="10m",
        expr='sum by (destination) (rate(redrive_delivery_attempts_total{outcome="retried"}[5m]))'
        " / sum by (destination) (rate(redrive_delivery_attempts_total[5m])) > 0.2",
        summary="Too many attempts fail",
        description="More than a fifth of the attempts for {{ $labels.destination }} have to be tried again.",
        series={
            'redrive_delivery_attempts_total{destination="erp",outcome="delivered"}': "0+60x60",
            'redrive_delivery_attempts_total{destination="erp",outcome="retried"}': "0+60x20 1200x40",
        },
        fires=16,
        clears=30,
        labels=ERP,
    ),
    Alert(
        name="RedriveLeasesOverdue",
        severity=PAGE,
        after="3m",
        expr="sum by (destination) (redrive_leases_overdue) > 0",
        summary="Claims have run out and are not taken back",
        description="Messages for {{ $labels.destination }} are stuck in the hands of a relay that is gone.",
        series={'redrive_leases_overdue{destination="erp"}': "0x3 2x7 0x10"},
        fires=9,
        clears=13,
        labels=ERP,
    ),
    Alert(
        name="RedriveFencedWrites",
        severity=TICKET,
        expr="sum by (destination) (increase(redrive_fenced_writes_total[15m])) > 0",
        summary="Outcomes came too late",
        description="Outcomes for {{ $labels.destination }} were refused: their claims had been taken back meanwhile.",
        series={'redrive_fenced_writes_total{destination="erp"}': "0x5 1x40"},
        fires=8,
        clears=30,
        labels=ERP,
    ),
    Alert(
        name="RedriveDutyOverdue",
        severity=TICKET,
        after="5m",
        expr="max by (duty) (redrive_duty_overdue) == 1 or max by (duty) (redrive_duty_failing) == 1",
        summary="Periodic work does not run",
        description="The duty {{ $labels.duty }} is overdue or fails.",
        series={'redrive_duty_failing{duty="reap"}': "0x3 1x9 0x10"},
        fires=11,
        clears=14,
        labels={"duty": "reap"},
    ),
    Alert(
        name="RedriveLaneViolation",
        severity=TICKET,
        expr="max(increase(redrive_lane_violations[1h])) > 0",
        summary="An ordering key was forgotten, and healed",
        description="No relay would have claimed it again. That is a bug of Redrive: please report it.",
        series={"redrive_lane_violations": "0x5 1x90"},
        fires=8,
        clears=80,
    ),
    Alert(
        name="RedriveOldSnapshot",
        severity=TICKET,
        after="15m",
        expr="max(redrive_oldest_snapshot_age_transactions) > 1000000",
        summary="Dead rows are kept alive",
        description="A transaction has been open for over a million others; every claim takes longer.",
        series={"redrive_oldest_snapshot_age_transactions": "0x3 2000000x20 0x10"},
        fires=20,
        clears=25,
    ),
    Alert(
        name="RedrivePartitionsEnd",
        severity=TICKET,
        after="15m",
        expr="min(redrive_partitions_ahead_seconds) < 172800",
        summary="Partitions end in less than two days",
        description="The duty `partitions` should have made more.",
        series={"redrive_partitions_ahead_seconds": "900000x3 3600x20 900000x10"},
        fires=20,
        clears=25,
    ),
    Alert(
        name="RedriveVersionSkew",
        severity=TICKET,
        after="1h",
        expr="max(redrive_relay_versions) > 1",
        summary="Relays of two versions have run for an hour",
        description="A roll-out was not finished.",
        series={"redrive_relay_versions": "1x3 2x70 1x10"},
        fires=66,
        clears=75,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Of the alerts of payments: seconds, dead letters in 15 minutes, payments, a share of all attempts."""

    oldest_pending_seconds: float = 60
    dead_letters: float = 5
    stuck: float = 0
    retryable_share: float = 0.2


SEPA = {"destination": "payments.sepa"}


def payments_alerts(at: Thresholds) -> tuple[Alert, ...]:
    """By the names of the document of payments, on its metrics."""
    return (
        Alert(
            name="PaymentsOldestPending",
            severity=PAGE,
            after="5m",
            expr=f"max by (destination) (oldest_pending_age_seconds) > {at.oldest_pending_seconds:g}",
            summary="Payments wait too long",
            description="The oldest due payment of {{ $labels.destination }} waits for longer than it should.",
            series={'oldest_pending_age_seconds{destination="payments.sepa"}': "0x3 120x9 0x10"},
            fires=11,
            clears=14,
            labels=SEPA,
        ),
        Alert(
            name="PaymentsDlqGrowth",
            severity=PAGE,
            expr=f'sum(increase(attempts_total{{state="FAILED"}}[15m])) > {at.dead_letters:g}',
            summary="Payments fail in numbers",
            description="More payments were given up in 15 minutes than are usual.",
            series={'attempts_total{state="FAILED"}': "0x5 2+2x9 20x40"},
            fires=12,
            clears=40,
        ),
        Alert(
            name="PaymentsStuckDispatching",
            severity=PAGE,
            after="3m",
            expr=f"sum by (destination) (stuck_dispatching_count) > {at.stuck:g}",
            summary="Payments are stuck",
            description="Payments of {{ $labels.destination }} are in the hands of a relay that is gone.",
            series={'stuck_dispatching_count{destination="payments.sepa"}': "0x3 2x7 0x10"},
            fires=9,
            clears=13,
            labels=SEPA,
        ),
        Alert(
            name="PaymentsRetryableRate",
            severity=TICKET,
            after="10m",
            expr='sum(rate(attempts_total{state="RETRYABLE"}[5m]))'
            ' / sum(rate(attempts_total{state=~"DISPATCHED|RETRYABLE|FAILED|HELD"}[5m]))'
            f" > {at.retryable_share:g}",
            summary="Too many payments have to be tried again",
            description="The share of attempts that have to be tried again has been high for ten minutes.",
            series={
                'attempts_total{state="DISPATCHED"}': "0+60x60",
                'attempts_total{state="RETRYABLE"}': "0+60x20 1200x40",
            },
            fires=16,
            clears=30,
        ),
        Alert(
            name="PaymentsFindings",
            severity=PAGE,
            expr="sum by (rail, kind) (payments_findings) > 0",
            summary="The books of payments do not agree",
            description="Rail {{ $labels.rail }}: {{ $labels.kind }}. Intents, archive and statement differ.",
            series={'payments_findings{rail="sepa",kind="missing"}': "0x3 1x9 0x10"},
            fires=5,
            clears=14,
            labels={"rail": "sepa", "kind": "missing"},
        ),
    )


PAYMENTS = payments_alerts(Thresholds())

REVIEWS = (
    Alert(
        name="CodeDefectDeadLetter",
        severity=PAGE,
        expr='sum by (stage) (reviews_dead_letters{category="defect"}) > 0',
        summary="A review died of a defect",
        description="In the stage {{ $labels.stage }} a review was given up for a bug or a wrong configuration.",
        series={'reviews_dead_letters{stage="llm",category="defect"}': "0x3 1x9 0x10"},
        fires=5,
        clears=14,
        labels={"stage": "llm"},
    ),
    Alert(
        name="ReplayFailedSameClass",
        severity=TICKET,
        expr="sum by (stage) (reviews_escalated_letters) > 0",
        summary="A replay failed as before",
        description="In the stage {{ $labels.stage }} a dead letter was replayed and died of the same error "
        "class again.",
        series={'reviews_escalated_letters{stage="notify",kind="escalated"}': "0x3 1x9 0x10"},
        fires=5,
        clears=14,
        labels={"stage": "notify"},
    ),
    Alert(
        name="SentWithoutProviderRecord",
        severity=PAGE,
        expr="sum by (provider) (increase(reviews_sent_without_record[1h])) > 0",
        summary="A recipient was marked as notified and was not",
        description="Provider {{ $labels.provider }} had no record of a delivery that was marked as sent.",
        series={'reviews_sent_without_record{provider="hooks",repair="requeued"}': "0x5 1x90"},
        fires=8,
        clears=80,
        labels={"provider": "hooks"},
    ),
)


EVENTS = {"outbox": "tenant.events"}
# At the thresholds of OutboxOptions, from which on an outbox is unhealthy (the failure ratio: degraded).
TENANT = (
    Alert(
        name="TenantOutboxBacklog",
        severity=PAGE,
        after="5m",
        expr="max by (outbox) (outbox_backlog_size) >= 10000",
        summary="An outbox falls behind",
        description="{{ $labels.outbox }} has ten thousand events that are not processed.",
        series={'outbox_backlog_size{outbox="tenant.events"}': "0x3 12000x9 10x10"},
        fires=11,
        clears=14,
        labels=EVENTS,
    ),
    Alert(
        name="TenantOutboxOldestEvent",
        severity=PAGE,
        after="5m",
        expr="max by (outbox) (outbox_oldest_age_seconds) >= 3600",
        summary="An event waits for an hour",
        description="The oldest unprocessed event of {{ $labels.outbox }} is older than an hour.",
        series={'outbox_oldest_age_seconds{outbox="tenant.events"}': "0x3 4000x9 10x10"},
        fires=11,
        clears=14,
        labels=EVENTS,
    ),
    Alert(
        name="TenantOutboxFailureRatio",
        severity=TICKET,
        after="10m",
        expr="max by (outbox) (outbox_failure_ratio) >= 0.2",
        summary="Many attempts of an outbox fail",
        description="A fifth of the attempts of {{ $labels.outbox }} has failed for ten minutes.",
        series={'outbox_failure_ratio{outbox="tenant.events"}': "0x3 0.4x15 0.1x10"},
        fires=16,
        clears=21,
        labels=EVENTS,
    ),
    Alert(
        name="TenantOutboxDeadLetters",
        severity=TICKET,
        expr="max by (outbox) (outbox_dead_letters) > 0",
        summary="Events were given up",
        description="{{ $labels.outbox }} has dead letters, which wait for a person.",
        series={'outbox_dead_letters{outbox="tenant.events"}': "0x3 2x9 0x10"},
        fires=5,
        clears=14,
        labels=EVENTS,
    ),
)

# Thresholds of the document that asked for them.
EVIDENCE = (
    Alert(
        name="EvidencePermanentFailures",
        severity=TICKET,
        expr="max(evidence_permanent_failure_ratio) > 0.1",
        summary="Much evidence cannot be attached",
        description="More than a tenth of the files that were settled in the last hour failed for good.",
        series={"evidence_permanent_failure_ratio": "0.02x3 0.3x9 0.05x10"},
        fires=5,
        clears=14,
    ),
    Alert(
        name="EvidenceRetryQueueDeep",
        severity=TICKET,
        after="10m",
        expr='max(evidence_retry_queue_depth{unit="artifacts"}) > 500',
        summary="Many files wait for a retry",
        description="More than 500 files have waited for a retry for ten minutes.",
        series={'evidence_retry_queue_depth{unit="artifacts"}': "0x3 800x15 20x10"},
        fires=16,
        clears=21,
    ),
    Alert(
        name="EvidenceN2Late",
        severity=TICKET,
        expr="max(evidence_n2_latency_seconds) > 21600 or max(evidence_n2_waiting_seconds) > 86400",
        summary="Final notices are late",
        description="Merchants waited for over six hours on average, or one has waited for over a day.",
        series={"evidence_n2_latency_seconds": "600x3 25000x9 600x10", "evidence_n2_waiting_seconds": "0x30"},
        fires=5,
        clears=14,
    ),
    Alert(
        name="EvidenceN2AfterLastRetry",
        severity=TICKET,
        expr="max(evidence_n2_after_last_retry_seconds) > 1800",
        summary="A final notice does not leave",
        description="An upload was settled over half an hour before its final notice, or still waits for it.",
        series={"evidence_n2_after_last_retry_seconds": "20x3 2000x9 20x10"},
        fires=5,
        clears=14,
    ),
    Alert(
        name="EvidenceSchedulerSilent",
        severity=PAGE,
        expr="time() - max(scheduler_heartbeat_timestamp_seconds) > 900",
        summary="The retry scheduler does not run",
        description="No relay has run the retry scheduler of evidence for over 15 minutes.",
        series={"scheduler_heartbeat_timestamp_seconds": "0+60x4 240x18 1380+60x10"},
        fires=21,
        clears=25,
    ),
    Alert(
        name="EvidenceLate",
        severity=TICKET,
        expr="sum(increase(evidence_late_evidence_count[1h])) > 0",
        summary="Evidence was attached after it counted as failed",
        description="In the last hour the Case API turned out to have a file whose attempt had counted as failed.",
        series={"evidence_late_evidence_count": "0x5 1x90"},
        fires=8,
        clears=80,
    ),
)


def rules(payments: Sequence[Alert] = PAYMENTS) -> dict[str, Any]:
    """As Prometheus reads them."""
    groups = {"redrive": ALERTS, "payments": payments, "reviews": REVIEWS, "tenant": TENANT, "evidence": EVIDENCE}
    return {"groups": [{"name": name, "rules": [_rule(one) for one in alerts]} for name, alerts in groups.items()]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.after,
        "labels": {"severity": alert.severity},
        "annotations": _annotations(alert),
    }


def _annotations(alert: Alert) -> dict[str, str]:
    return {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{RUNBOOKS}/{alert.name}.md",
        "dashboard_url": DASHBOARD,
    }


def unit_tests() -> dict[str, Any]:
    """For promtool: every alert is expected at its minute, and expected to be gone at its other."""
    return {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [_unit_test(alert) for alert in (*ALERTS, *PAYMENTS, *REVIEWS, *TENANT, *EVIDENCE)],
    }


def _unit_test(alert: Alert) -> dict[str, Any]:
    described = alert.description
    for label, value in alert.labels.items():
        described = described.replace(f"{{{{ $labels.{label} }}}}", value)
    expected = {
        "exp_labels": {"severity": alert.severity, **alert.labels},
        "exp_annotations": {**_annotations(alert), "description": described},
    }
    return {
        "interval": "1m",
        "name": alert.name,
        "input_series": [{"series": name, "values": values} for name, values in alert.series.items()],
        "alert_rule_test": [
            {"eval_time": "1m", "alertname": alert.name, "exp_alerts": []},
            {"eval_time": f"{alert.fires}m", "alertname": alert.name, "exp_alerts": [expected]},
            {"eval_time": f"{alert.clears}m", "alertname": alert.name, "exp_alerts": []},
        ],
    }


def files() -> dict[Path, str]:
    """Every file that is made, with what is in it."""
    made = {"alerts.yml": rules(), "alerts.test.yml": unit_tests()}
    return {HERE / "prometheus" / name: HEADER + written(what) for name, what in made.items()}


def written(what: dict[str, Any]) -> str:
    return yaml.safe_dump(what, sort_keys=False, width=120, allow_unicode=True)


def with_thresholds(arguments: Sequence[str]) -> str:
    """The rules with these thresholds, written as NAME=VALUE; one that is not known raises."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    return written(rules(payments_alerts(Thresholds(**{name: float(value) for name, value in given.items()}))))


def main() -> None:
    if sys.argv[1:]:
        print(with_thresholds(sys.argv[1:]), end="")
        return
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
