"""The shop of the tutorial: who signs up gets a welcome mail. The mail server is a file, so that you can break it."""

from pathlib import Path

import psycopg

import redrive

app = redrive.App()
SOON = redrive.Backoff(initial_seconds=1, multiplier=1.5, max_seconds=5, jitter="none")


@app.destination("welcome-mail", policy=redrive.Policy(attempts=500, backoff=SOON), in_doubt="hold")
def welcome(message: redrive.Attempt) -> None:  # returning means delivered
    mail_server = Path("mail-server.txt").read_text().strip()
    if mail_server == "busy":
        raise redrive.Retryable("MAIL_BUSY")  # not sent; later will do
    if mail_server == "locked":
        raise redrive.Terminal("ACCOUNT_LOCKED")  # not sent; later will not do either
    with Path("sent.txt").open("a") as sent:
        print(message.payload["to"], message.payload["text"], message.token, file=sent)
    if mail_server == "mute":
        raise redrive.Unknown("MAIL_NO_REPLY")  # sent or not: unknown


def sign_up(conn: psycopg.Connection, email: str) -> redrive.Receipt:  # in your transaction
    conn.execute("INSERT INTO users (email) VALUES (%s) ON CONFLICT DO NOTHING", [email])
    return redrive.enqueue(conn, "welcome-mail", {"to": email, "text": "Welcome!"}, key=f"welcome:{email}")


def tell(conn: psycopg.Connection, email: str, texts: list[str]) -> None:  # in this order, one after the other
    for text in texts:
        redrive.enqueue(conn, "welcome-mail", {"to": email, "text": text}, order_by=email)
