"""How far a long command is: bars on a terminal, on stderr; nothing elsewhere, so that a log stays readable."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from redrive.operate.cli import output

# What is being counted, how many are done, of how many.
Tell = Callable[[str, int, int], None]


@contextmanager
def bars() -> Iterator[Tell]:
    """One for each thing that is counted. May be told from any thread."""
    if not sys.stderr.isatty():
        yield lambda _kind, _done, _total: None
        return
    shown: dict[str, TaskID] = {}
    making = threading.Lock()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.stderr(), transient=True) as progress:

        def tell(kind: str, done: int, total: int) -> None:
            with making:
                bar = shown.setdefault(kind, shown.get(kind) or progress.add_task(kind, total=total))
            progress.update(bar, completed=done)

        yield tell
