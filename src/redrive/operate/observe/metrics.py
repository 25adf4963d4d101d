"""The metrics of one process in Prometheus' text format, fed by its events (G-20). Needs the extra `metrics`.

Only the relay that is the `reader` shows values of the database, so that none is scraped twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import redrive
from redrive.errors import SettingsError
from redrive.events import Events
from redrive.operate.observe import catalogue
from redrive.operate.observe.catalogue import Feed, Kind, Metric
from redrive.store.reads.gauges import Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

Read = Callable[[], "Reading"]


class Reading(NamedTuple):
    """Values of the database. Empty if another relay is the reader."""

    gauges: Sequence[Gauge] = ()
    at: float = 0.0
    is_reader: bool = False


class RelayMetrics:
    """moved: what events move. more: metrics of the relay's systems."""

    def __init__(
        self,
        read: Read = Reading,
        *,
        moved: Sequence[Metric] = catalogue.RELAY,
        more: Sequence[Metric] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self.registry = new_registry()
        self._now = now
        self._moved = [*moved, *(metric for metric in more if metric.gauge is None)]
        self._series = {metric.name: _collector(metric, self.registry) for metric in self._moved}
        self._children: dict[tuple[str, ...], Any] = {}
        _collector(catalogue.INFO, self.registry).labels(redrive.__version__).set(1)
        gauges = [metric for metric in more if metric.gauge is not None]
        self.registry.register(_Collector(lambda: _database(read(), gauges)))

    def subscribe(self, events: Events) -> Callable[[], None]:
        moves = [(event, metric, feed) for metric in self._moved for event, feed in metric.events.items()]
        ends = [events.subscribe(self._mover(metric, feed), event) for event, metric, feed in moves]
        ends.append(events.subscribe(self._begin, "relay.started", "worker.started"))

        def stop() -> None:
            for end in ends:
                end()

        return stop

    def _begin(self, _: str, values: Mapping[str, Any]) -> None:
        """Series of a destination or a consumer begin at 0, before its first message."""
        for metric in self._moved:
            own = tuple(name for name in values.get("destinations", ()) if metric.is_of(name))
            known = {**catalogue.WORDS, **metric.words, "destination": own, "consumer": values.get("consumers", ())}
            if metric.labels and set(metric.labels) <= set(known):
                for labels in product(*(known[label] for label in metric.labels)):
                    self._labelled(metric, labels)

    def _mover(self, metric: Metric, feed: Feed) -> Callable[[str, Mapping[str, Any]], None]:
        move = _MOVES[metric.kind]

        def moved(_: str, values: Mapping[str, Any]) -> None:
            amount = 1.0 if feed.amount is None else values.get(feed.amount)
            # An attempt that was never begun took no time.
            if amount is not None and metric.is_of(values.get("destination")):
                move(self._child(metric, feed, values), self._amount(metric, feed, amount))

        return moved

    def _amount(self, metric: Metric, feed: Feed, amount: float) -> float:
        if metric.kind is Kind.GAUGE and feed.amount is None:
            return self._now() if feed.sets is None else feed.sets
        return amount * feed.scale

    def _child(self, metric: Metric, feed: Feed, values: Mapping[str, Any]) -> Any:
        if not metric.labels:
            return self._series[metric.name]
        return self._labelled(metric, tuple(_label(feed, label, values) for label in metric.labels))

    def _labelled(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        child = self._children.get((metric.name, *labels))
        if child is None:
            child = self._children[(metric.name, *labels)] = self._series[metric.name].labels(*labels)
        return child


def _label(feed: Feed, label: str, values: Mapping[str, Any]) -> str:
    if label in feed.renamed:
        source, words = feed.renamed[label]
        return words.get(str(values.get(source)), "")
    return str(feed.words.get(label) or values.get(label) or "")


class _Collector:
    def __init__(self, collect: Callable[[], Iterator[Family]]) -> None:
        self.collect = collect

    def describe(self) -> Iterator[Family]:
        """Empty, so that registration does not read the database."""
        return iter(())


def _database(reading: Reading, more: Sequence[Metric]) -> Iterator[Family]:
    yield _family(catalogue.READER, [((), float(reading.is_reader))])
    yield _family(catalogue.READ_AT, [((), reading.at)])
    yield from families(reading.gauges)
    if reading.is_reader:
        yield from (_family(metric, _values(metric, reading.gauges)) for metric in more)


def families(gauges: Sequence[Gauge]) -> Iterator[Family]:
    values: dict[str, list[tuple[tuple[str, ...], float]]] = {}
    for gauge in gauges:
        values.setdefault(gauge.name, []).append((_labels(gauge), gauge.value))
    for name, metric in catalogue.BY_GAUGE.items():
        if name in values:
            yield _family(metric, values[name])


def _values(metric: Metric, gauges: Sequence[Gauge]) -> list[tuple[tuple[str, ...], float]]:
    own = [gauge for gauge in gauges if gauge.name == metric.gauge and metric.is_of(gauge.subject or None)]
    if metric.reason is None:
        return [(_labels(gauge), gauge.value) for gauge in own]
    return [((gauge.subject,), gauge.value) for gauge in own if gauge.reason == metric.reason]


def _labels(gauge: Gauge) -> tuple[str, ...]:
    return tuple(label for label in (gauge.subject, gauge.reason) if label)


def _family(metric: Metric, values: Sequence[tuple[tuple[str, ...], float]]) -> Family:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(metric.name, metric.meaning, labels=list(metric.labels))
    for labels, value in values:
        family.add_metric(list(labels), value)
    return family


def _collector(metric: Metric, registry: CollectorRegistry) -> Any:
    import prometheus_client as prometheus

    named = (metric.name, metric.meaning, metric.labels)
    match metric.kind:
        case Kind.COUNTER:
            return prometheus.Counter(*named, registry=registry)
        case Kind.GAUGE:
            return prometheus.Gauge(*named, registry=registry)
        case Kind.HISTOGRAM:
            return prometheus.Histogram(*named, registry=registry, buckets=metric.buckets)


_MOVES: Mapping[Kind, Callable[[Any, float], None]] = {
    Kind.COUNTER: lambda series, amount: series.inc(amount),
    Kind.GAUGE: lambda series, amount: series.set(amount),
    Kind.HISTOGRAM: lambda series, amount: series.observe(amount),
}


def new_registry() -> CollectorRegistry:
    try:
        import prometheus_client as prometheus
    except ImportError:
        raise SettingsError(
            "Metrics need the library prometheus-client, which is not installed.", next='pip install "redrive[metrics]"'
        ) from None
    prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
    return prometheus.CollectorRegistry()


def database_exposition(gauges: Sequence[Gauge]) -> bytes:
    registry = new_registry()
    registry.register(_Collector(lambda: families(gauges)))
    return exposition(registry)[0]


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
