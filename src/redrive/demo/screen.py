"""The demo's live screen, or plain lines in a pipe."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

NEWS_SHOWN = 8
ABOUT = {
    "warehouse": ("healthy", "green"),
    "mail": ("flaky: busy at times, replies get lost", "yellow"),
    "partner": ("down: refuses connections", "red"),
}


@dataclass
class Row:
    delivered: int = 0
    waiting: int = 0
    retrying: int = 0
    leased: int = 0
    parked: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Scene:
    orders: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    news: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=NEWS_SHOWN))

    def hear(self, name: str, values: Mapping[str, Any]) -> None:
        said = _WORDS.get(name)
        if said is not None:
            words, colour = said
            if name == "message.retried":
                words = _retried(values)
            code = f" {values['code']}" if values.get("code") else ""
            text = f"{values['destination']:<10} attempt {values['attempt']:<3} {words}{code}"
            self.news.append((text, colour))


def _retried(values: Mapping[str, Any]) -> str:
    """Failed and in doubt are two things, also on a screen."""
    seconds = f"{values['delay_seconds']:.1f} s"
    return f"in doubt, will ask first, in {seconds}:" if values["in_doubt"] else f"failed, again in {seconds}:"


_WORDS = {
    "message.delivered": ("delivered", "green"),
    "message.retried": ("failed", "yellow"),
    "message.parked": ("parked for a person:", "red"),
}


def render(scene: Scene) -> Group:
    table = Table(expand=True, box=None, pad_edge=False)
    table.add_column("destination")
    table.add_column("is")
    for title in ("delivered", "waiting", "retrying", "in flight"):
        table.add_column(title, justify="right")
    table.add_column("parked")
    for name, row in scene.rows.items():
        about, colour = ABOUT[name]
        table.add_row(
            name,
            Text(about, style=colour),
            str(row.delivered),
            str(row.waiting),
            str(row.retrying),
            str(row.leased),
            Text(_parked(row.parked), style="red" if row.parked else ""),
        )
    news = Text("\n").join(Text(text, style=colour) for text, colour in scene.news)
    return Group(
        Panel(table, title=f"a shop has taken {scene.orders} orders", title_align="left"),
        Panel(news, title="what just happened", title_align="left", height=NEWS_SHOWN + 2),
    )


def line(scene: Scene) -> str:
    return f"{scene.orders} orders | " + " | ".join(_in_short(name, row) for name, row in scene.rows.items())


def _in_short(name: str, row: Row) -> str:
    still_open = row.waiting + row.retrying + row.leased
    return f"{name}: {row.delivered} delivered, {still_open} open, {sum(row.parked.values())} parked"


def summary(console: Console, scene: Scene, found: Sequence[str]) -> None:
    for name, row in scene.rows.items():
        console.print(
            f"{name:<10} {row.delivered:>5} delivered, {sum(row.parked.values()):>5} parked {_parked(row.parked)}"
        )
    for sentence in found:
        console.print(f"VIOLATION: {sentence}", style="bold red")
    if not found:
        console.print(
            f"{scene.orders} orders: each message delivered once, or parked with its reason.", style="bold green"
        )


def _parked(parked: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in sorted(parked.items()))
