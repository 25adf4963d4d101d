"""The ratios as bars, with the aim marked: an SVG made by hand, readable in light and dark."""

from collections.abc import Sequence
from html import escape

from redrive.bench.run import Measured

WIDTH, ROW, LEFT, TOP = 860, 46, 330, 40
SCALE_MAX = 1.25


def svg(measured: Sequence[Measured], *, caption: str) -> str:
    height = TOP + ROW * len(measured) + 34
    rows = "".join(_row(m, TOP + ROW * index) for index, m in enumerate(measured))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(caption)}" font-family="system-ui, sans-serif" font-size="14">'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text x="16" y="24" fill="#1f2430" font-weight="600">{escape(caption)}</text>{rows}'
        f'<text x="16" y="{height - 12}" fill="#5a6372" font-size="12">'
        "Bar: ratio to the reference of the same run. Thin line: lowest to highest. Dark mark: the aim.</text></svg>\n"
    )


def _row(measured: Measured, y: int) -> str:
    is_better_small = measured.workload.unit == "ms"
    aim_ratio = measured.workload.aim
    reached = measured.ratio <= aim_ratio if is_better_small else measured.ratio >= aim_ratio
    bar, aim = _x(measured.ratio), _x(aim_ratio)
    middle, colour = y + 16, "#2f7d4f" if reached else "#b4483a"
    low, high = _x(measured.ratio_low), _x(measured.ratio_high)
    return (
        f'<text x="16" y="{y + 14}" fill="#1f2430">{escape(measured.workload.name)} {escape(_short(measured))}</text>'
        f'<text x="16" y="{y + 30}" fill="#5a6372" font-size="12">{escape(_rates(measured))}</text>'
        f'<rect x="{LEFT}" y="{y + 6}" width="{bar - LEFT}" height="20" rx="3" fill="{colour}"/>'
        f'<line x1="{low}" x2="{high}" y1="{middle}" y2="{middle}" stroke="#1f2430"/>'
        f'<line x1="{aim}" x2="{aim}" y1="{y + 2}" y2="{y + 30}" stroke="#1f2430" stroke-width="3"/>'
        f'<text x="{max(bar, high) + 8}" y="{y + 21}" fill="#1f2430">{measured.ratio:.2f}</text>'
    )


def _x(ratio: float) -> float:
    return round(LEFT + min(ratio, SCALE_MAX) / SCALE_MAX * (WIDTH - LEFT - 60), 1)


def _short(measured: Measured) -> str:
    title = measured.workload.title
    return title if len(title) <= 44 else title[:43] + "…"


def _rates(measured: Measured) -> str:
    rates = measured.rates
    shown = measured.workload.shown
    return f"{shown(rates[measured.workload.figure])} against {shown(rates[measured.workload.reference])}"
