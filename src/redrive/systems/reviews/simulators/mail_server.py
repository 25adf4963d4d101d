"""The mail server of the proof kit in a process of its own, with faults by a seed: for the demo and the proof.

`python -m redrive.systems.reviews.simulators.mail_server` reads its settings from standard input; the first line that
it prints is its port. What it has accepted is in its log before it says so: see `redrive.kit.proof.smtp_server`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redrive.kit.proof.smtp_server import Act, Fault, SmtpServer, serving


@dataclass
class UnreliableServer(SmtpServer):
    """share: by step, the answer or act in place of the usual reply, and how often it comes, 0 to 1; behind `faults`.
    seed: draws the same faults again.
    """

    share: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fault(self, step: str) -> str | Act | None:
        if (found := super().fault(step)) is not None:
            return found
        if step not in self.share:
            return None
        answer, share = self.share[step]
        return _answer(answer) if self._random.random() < share else None


async def serve(settings: Mapping[str, Any]) -> None:
    """Until it is cancelled. first: by step, what the first mail meets."""
    server = UnreliableServer(
        log=Path(settings["log"]),
        faults={step: Fault(_answer(one), times=1) for step, one in settings.get("first", {}).items()},
        share=settings.get("share", {}),
        seed=settings.get("seed", 0),
    )
    async with serving(server):
        print(server.port, flush=True)
        await asyncio.Event().wait()


def _answer(said: str) -> str | Act:
    return Act(said) if said in set(Act) else said


def main() -> None:
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(json.loads(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
