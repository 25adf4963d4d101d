"""Failpoints: a process that ends, freezes or fails at the nth time it comes to a step boundary.

    REDRIVE_FAILPOINT=claim.stop:3:kill    REDRIVE_FAILPOINT_MARK=/some/file

The first process that fires makes the mark: a child that is started again goes on.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from redrive.events import INNER_STEPS, NAMES, STEPS, Events

Act = Literal["kill", "raise", "sleep", "stop"]

VARIABLE: Final = "REDRIVE_FAILPOINT"
# Met only where the clock of the database jumps.
AFTER_A_JUMP: Final = frozenset({"clock_jumped", "redate"})
MARK_VARIABLE: Final = "REDRIVE_FAILPOINT_MARK"


class InjectedFault(Exception): ...


@dataclass(frozen=True, kw_only=True)
class Failpoint:
    """nth: 1 = the first time. seconds: for `sleep`; beyond a lease it makes a zombie."""

    event: str
    nth: int = 1
    act: Act = "kill"
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.event not in NAMES or self.act not in get_args(Act) or self.nth < 1:
            raise ValueError(f"{self} is not a failpoint; events are those of redrive.events, acts {get_args(Act)}.")

    def __str__(self) -> str:
        return f"{self.event}:{self.nth}:{self.act}:{self.seconds:g}"


def boundaries() -> list[str]:
    """Without those after a jump, which need a server whose clock can be set."""
    return [
        f"{step}.{edge}"
        for step in STEPS
        if step not in AFTER_A_JUMP
        for edge in ("start", "stop")
        if edge == "start" or step not in INNER_STEPS
    ]


def parse(text: str) -> Failpoint:
    """`event:nth:act` or `event:nth:act:seconds`."""
    event, nth, act, *seconds = text.split(":")
    return Failpoint(event=event, nth=int(nth), act=act, seconds=float(seconds[0]) if seconds else 0.0)  # type: ignore[arg-type]  # checked there


def install(events: Events, environ: Mapping[str, str] = os.environ) -> None:
    if environ.get(VARIABLE):
        point = parse(environ[VARIABLE])
        events.subscribe(_subscriber(point, environ.get(MARK_VARIABLE)), point.event)


def _subscriber(point: Failpoint, mark: str | None) -> Callable[[str, Mapping[str, Any]], None]:
    seen = 0

    def count(_: str, __: Mapping[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == point.nth and _is_first(mark):
            _fire(point)

    return count


def _is_first(mark: str | None) -> bool:
    """The mark holds the id of the process that fired first."""
    if mark is None:
        return True
    try:
        made = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    os.write(made, str(os.getpid()).encode())
    os.close(made)
    return True


def _fire(point: Failpoint) -> None:
    match point.act:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(point.seconds)
        case "raise":
            raise InjectedFault(str(point))
