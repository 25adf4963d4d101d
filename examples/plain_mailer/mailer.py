"""Who signs up gets a welcome mail. Plain psycopg; the mails go to a Maildir, which can be asked."""

import mailbox
import os
from email.message import EmailMessage

import psycopg

import redrive

app = redrive.App()


def mails() -> mailbox.Maildir:
    return mailbox.Maildir(os.environ.get("MAILDIR", "mails"))


def look_for(message: redrive.Attempt) -> redrive.Found | redrive.Absent:
    """Asked before a message is sent again that may have been sent already."""
    was_sent = any(mail["Message-ID"] == _message_id(message) for mail in mails())
    return redrive.Found(_message_id(message)) if was_sent else redrive.Absent()


@app.destination("welcome", lookup=look_for)
def welcome(message: redrive.Attempt) -> redrive.Delivered:
    mail = EmailMessage()
    mail["To"], mail["Subject"], mail["Message-ID"] = message.payload["to"], "Welcome", _message_id(message)
    mail.set_content("Good to have you here.")
    mails().add(mail)
    return redrive.Delivered(_message_id(message))


def sign_up(conn: psycopg.Connection, email: str) -> redrive.Receipt:
    conn.execute("INSERT INTO users (email) VALUES (%s)", [email])
    return redrive.enqueue(conn, "welcome", {"to": email}, key=f"welcome:{email}")


def _message_id(message: redrive.Attempt) -> str:
    return f"<{message.token}@mailer.example>"
