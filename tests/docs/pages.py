"""A page as the steps that a reader takes: its fenced blocks, and what the page's source hides from him.

    ```python            run;  ```python shop.py: written to that file
    ```sql, ```shell     run;  ```shell exit=6: a command that ends so;  ```shell background: it goes on running
    ```output            what the last command printed; `…` stands for anything
    ```… no-run: why     not run; the tests count these
    <!-- do: … -->       run in Python, not shown;  <!-- check: … --> must be true

The steps of a page share one namespace and one database. `tests/docs` runs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
HOW_TO: Final = sorted((DOCS / "how-to").glob("*.md"))
KINDS: Final = frozenset({"python", "sql", "shell", "sh", "output", "text", "toml", "do", "check"})

_STEP: Final = re.compile(
    r"^```(?P<kind>\w+)(?P<words>[^\n]*)\n(?P<block>.*?)^```$"
    r"|^<!-- (?P<hidden>do|check):(?P<code>.*?)-->$"
    r"|^```(?P<bare>)$",
    re.MULTILINE | re.DOTALL,
)


class Step(NamedTuple):
    """kind: one of `KINDS`. words: what stands behind it. place: file and line, for whoever has to mend it."""

    kind: str
    words: str
    text: str
    place: str

    @property
    def is_run(self) -> bool:
        return not self.words.startswith("no-run:")

    @property
    def exit_code(self) -> int:
        found = re.search(r"exit=(\d+)", self.words)
        return int(found.group(1)) if found else 0


def steps(page: Path) -> Iterator[Step]:
    text = page.read_text(encoding="utf-8")
    for found in _STEP.finditer(text):
        place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
        kind = found["kind"] or found["hidden"]
        if kind not in KINDS:
            raise ValueError(
                f"{place}: a block is {kind or 'of no kind'!r}; it must be one of {', '.join(sorted(KINDS))}."
            )
        yield Step(kind, (found["words"] or "").strip(), found["block"] or found["code"] or "", place)


def fits(shown: str, printed: str) -> bool:
    """Whether a page's output is what was printed: white space does not count, `…` stands for anything, and every
    shown line has to occur in the order shown; what else was printed is left out of pages."""
    patterns = [_loose(line) for line in shown.strip().splitlines() if line.strip()]
    place = 0
    lines = printed.splitlines()
    for pattern in patterns:
        at = next((i for i in range(place, len(lines)) if re.search(pattern, " ".join(lines[i].split()))), None)
        if at is None:
            return False
        place = at + 1
    return True


def _loose(line: str) -> str:
    return ".*".join(re.escape(" ".join(part.split())) for part in line.split("…"))
