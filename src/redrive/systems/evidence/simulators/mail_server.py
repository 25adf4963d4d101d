"""The mail server of the proof kit as a process: `python -m redrive.systems.evidence.simulators.mail_server`.

It reads its settings from standard input; the first line that it prints is its port. What it has accepted is in its log
before it says so: see `redrive.kit.proof.smtp_server`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from redrive.kit.proof.smtp_server import SmtpServer, serving


async def serve(settings: dict[str, Any]) -> None:
    """Until it is cancelled."""
    async with serving(SmtpServer(log=Path(settings["log"]))) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(json.loads(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
