"""The reference page of the metrics, made from their catalogue. Used by `tools.reference`."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.operate.observe import catalogue
from redrive.operate.observe.catalogue import Metric
from redrive.systems.evidence.metrics import METRICS as OF_EVIDENCE
from redrive.systems.payments.metrics import METRICS
from redrive.systems.reviews.metrics import METRICS as OF_REVIEWS
from redrive.systems.tenant.metrics import METRICS as OF_TENANT
from tools.reference_text import paragraph, table, words


def metrics_page() -> Iterator[str]:
    yield "# Metrics"
    yield from paragraph(
        """A relay shows them at `/metrics` of `--metrics-listen` ([how to](../how-to/monitor.md)). A label is a
        destination, a duty, a table or a word of a closed list; none carries an id, a key, a tenant or a text.
        A destination's series begin at 0 when the relay starts."""
    )
    yield from ("", "## Of one relay")
    yield from paragraph("Since its process started; add them up over all relays.")
    yield ""
    rows = [(*_row(metric), words(list(metric.events))) for metric in catalogue.RELAY]
    yield from table(("metric", "kind", "labels", "meaning", "moved by"), rows)
    yield from ("", "## Of the database")
    yield from paragraph(
        """Shown by one relay at a time, which the relays elect among themselves (the duty `gauges`); another takes over
        when it ends. At most 200,000 rows each of what waits, is in hand and is parked are counted; ages are exact
        whatever the depth."""
    )
    yield ""
    yield from table(("metric", "kind", "labels", "meaning"), [_row(metric) for metric in catalogue.DATABASE])
    yield from ("", "## Of the exposition", "")
    own = (catalogue.READER, catalogue.READ_AT, catalogue.INFO)
    yield from table(("metric", "kind", "labels", "meaning"), [_row(metric) for metric in own])
    yield from ("", "## Of payments")
    yield from paragraph(
        """Shown by a relay whose app includes payments, by the names of the document that asked for them. Gauges are
        shown by the relay that reads the database."""
    )
    yield ""
    yield from table(("metric", "kind", "labels", "meaning"), [_row(metric) for metric in METRICS.values()])
    yield from ("", "## Of the tenant outbox")
    yield from paragraph(
        """Shown by a relay whose app includes a tenant outbox, unless its `PrometheusEnabled` is false. Gauges are
        shown by the relay that reads the database; window and thresholds are the outbox's own options."""
    )
    yield ""
    yield from table(("metric", "kind", "labels", "meaning"), [_row(metric) for metric in OF_TENANT.values()])
    yield from ("", "## Of reviews")
    yield from paragraph("Shown by the relay that reads the database, if its app includes reviews.")
    yield ""
    yield from table(("metric", "kind", "labels", "meaning"), [_row(metric) for metric in OF_REVIEWS.values()])
    yield from ("", "## Of evidence")
    yield from paragraph(
        """Shown by the relay that reads the database, if its app includes evidence. Rates and means are those of the
        last hour."""
    )
    yield ""
    yield from table(("metric", "kind", "labels", "meaning"), [_row(metric) for metric in OF_EVIDENCE.values()])
    yield from ("", "## Names of the source documents")
    yield from paragraph(
        """What the documents that Redrive was made from call it, and where it is found here. A ratio or a throughput is
        a query: `rate` of the counter, over whatever window is wanted. Where a system has a metric of that name, it
        comes first. Metrics of one system (batches, documents, notifications) are that system's."""
    )
    yield ""
    yield from table(("there", "here"), _names_of_documents())


def _names_of_documents() -> list[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for metric in (*OF_TENANT.values(), *OF_EVIDENCE.values(), *catalogue.METRICS):
        for seed in metric.seeds:
            found.setdefault(seed, []).append(metric.name)
    return [(f"`{seed}`", words(names)) for seed, names in sorted(found.items(), key=lambda one: one[0].lower())]


def _row(metric: Metric) -> tuple[str, ...]:
    return f"`{metric.name}`", metric.kind.value, words(list(metric.labels)), metric.meaning
