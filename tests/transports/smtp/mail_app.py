"""An app for relays that are killed: mails to the server whose port is in the environment."""

from __future__ import annotations

import os
from typing import Final, Literal

import redrive
from redrive.transports.smtp import SmtpTransport

PORT_VARIABLE: Final = "REDRIVE_TEST_MAIL_PORT"
CHOICES: Final[tuple[Literal["hold", "resend"], ...]] = ("hold", "resend")

app = redrive.App()
for choice in CHOICES:
    app.transport(
        choice,
        SmtpTransport("127.0.0.1", port=int(os.environ.get(PORT_VARIABLE, "1")), tls="none", sender="shop@example.com"),
        in_doubt=choice,
        concurrency=1,
        policy=redrive.Policy(attempts=5, backoff=redrive.Backoff(initial_seconds=0)),
    )
