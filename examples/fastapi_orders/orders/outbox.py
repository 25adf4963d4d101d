"""What is sent, and how. A receipt is a file, so that you can look at it."""

import os
from pathlib import Path

import redrive

outbox = redrive.App()


@outbox.destination("receipt")
def write_receipt(message: redrive.Attempt) -> None:
    place = Path(os.environ.get("RECEIPTS", "receipts"))
    place.mkdir(exist_ok=True)
    order = message.payload
    # Named by the token: written twice, it is the same file.
    (place / f"{message.token}.txt").write_text(f"{order['item']} for {order['email']}\n")
