"""Waits for a condition of another process, with a deadline and the reason in the failure."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.01


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Return when the condition holds; fail with `what` was waited for when the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {seconds} s for {what}, in vain")
        time.sleep(POLL_SECONDS)
