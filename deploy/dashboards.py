"""The Grafana dashboards, made from the catalogues of metrics: `python deploy/dashboards.py` writes deploy/grafana/.

One of the engine, one of evidence. Every metric of the catalogue is on it, in a row for each kind of question; nothing
else can be, so that no panel asks for a name that is not there. Classic JSON, which every Grafana imports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from redrive.operate.observe import catalogue
from redrive.operate.observe.catalogue import Kind, Metric
from redrive.systems.evidence.metrics import METRICS as EVIDENCE

HERE = Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WINDOW = "$__rate_interval"
WIDTH, HEIGHT = 8, 7
UNITS = {"seconds": "s", "bytes": "bytes", "total": "ops"}
FILTER = 'destination=~"$destination"'


Rows = Mapping[str, Sequence[Metric]]
ENGINE_ROWS: Rows = {
    "What waits, and for whom": catalogue.DATABASE,
    "What relays do": catalogue.RELAY,
    "The exposition itself": (catalogue.READER, catalogue.READ_AT, catalogue.INFO),
}
EVIDENCE_ROWS: Rows = {
    "Attempts": [EVIDENCE[name] for name in EVIDENCE if name.startswith("evidence_attach_")],
    "Retries and notices": [
        EVIDENCE[name] for name in EVIDENCE if name.startswith(("evidence_retry_", "evidence_n2_", "scheduler_"))
    ],
    "What failed for good, and what was late": [
        EVIDENCE[name] for name in EVIDENCE if name.startswith(("evidence_permanent_", "evidence_late_"))
    ],
}


def dashboard() -> dict[str, Any]:
    return _dashboard("redrive-overview", "Redrive", ENGINE_ROWS, [_datasource(), _destination()])


def evidence_dashboard() -> dict[str, Any]:
    return _dashboard("redrive-evidence", "Redrive: evidence", EVIDENCE_ROWS, [_datasource()])


def _dashboard(uid: str, title: str, rows: Rows, variables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "tags": ["redrive"],
        "schemaVersion": 39,
        "timezone": "utc",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(variables)},
        "panels": list(_panels(rows)),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _destination() -> dict[str, Any]:
    query = "label_values(redrive_messages_pending, destination)"
    return {
        "name": "destination",
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: Rows) -> Iterator[dict[str, Any]]:
    """Each row has a title, and its metrics below."""
    number, top = 1, 0
    for title, metrics in rows.items():
        yield {"id": number, "type": "row", "title": title, "gridPos": _place(0, top, width=24, height=1)}
        number, top = number + 1, top + 1
        for position, metric in enumerate(metrics):
            left, down = position % 3, position // 3
            yield _panel(metric, number, _place(left * WIDTH, top + down * HEIGHT))
            number += 1
        top += HEIGHT * -(-len(metrics) // 3)


def _panel(metric: Metric, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": metric.name.removeprefix(catalogue.PREFIX).replace("_", " "),
        "description": metric.meaning,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": _unit(metric), "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for i, (expr, legend) in enumerate(queries(metric))
        ],
    }


def queries(metric: Metric) -> Iterator[tuple[str, str]]:
    """What is asked of a metric, and how its lines are called."""
    by = ", ".join(metric.labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels)
    chosen = f"{{{FILTER}}}" if "destination" in metric.labels else ""
    match metric.kind:
        case Kind.COUNTER:
            yield f"sum by ({by}) (rate({metric.name}{chosen}[{WINDOW}]))", legend
        case Kind.GAUGE if metric.events:
            yield f"{metric.name}{chosen}", "{{instance}}"
        case Kind.GAUGE:
            yield f"max by ({by}) ({metric.name}{chosen})", legend
        case Kind.HISTOGRAM:
            for share in (0.5, 0.95, 0.99):
                rates = f"sum by (le, {by}) (rate({metric.name}_bucket{chosen}[{WINDOW}]))"
                yield f"histogram_quantile({share}, {rates})", f"p{share * 100:g} {legend}"


def _unit(metric: Metric) -> str:
    if "timestamp" in metric.name:
        return "dateTimeFromNow"
    return UNITS.get(metric.name.rpartition("_")[2], "short")


def _place(left: int, top: int, *, width: int = WIDTH, height: int = HEIGHT) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def files() -> dict[Path, str]:
    """Every file that is made, with what is in it."""
    made = {"redrive.json": dashboard(), "evidence.json": evidence_dashboard()}
    return {HERE / "grafana" / name: json.dumps(what, indent=1) + "\n" for name, what in made.items()}


def main() -> None:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
