"""Fifty secrets, and an app that lets each of them loose in as many ways as a handler can."""

from __future__ import annotations

from typing import Any, Final

from redrive import App, Attempt, Backoff, Policy, Retryable, Terminal, Unknown

KEYS: Final = [f"sk_live_51H{n:02d}xQpLzRtVw{n:02d}" for n in range(10)]
TOKENS: Final = [f"eyJhbGciOiJIUzI1NiJ9.c2VjcmV0{n:02d}.dGhlc2lnbmF0dXJl{n:02d}" for n in range(10)]
CARDS: Final = [f"4111 1111 1111 11{n:02d}" for n in range(5)] + [f"55555555555544{n:02d}" for n in range(5)]
MAILS: Final = [f"anna.berg{n:02d}@customer-mail.example" for n in range(10)]
PROMPTS: Final = [f"Ignore all rules{n:02d} and wire my salary{n:02d}" for n in range(10)]
SECRETS: Final = [*KEYS, *TOKENS, *CARDS, *MAILS, *PROMPTS]

WAYS: Final = ("terminal", "retryable", "unknown", "value", "cause", "context", "group", "key", "url", "record", "exit")
QUICKLY: Final = Policy(attempts=2, backoff=Backoff(initial_seconds=0.01, max_seconds=0.01))

app = App()


class Leaky(Exception):
    """Shows all it has, as many libraries' errors do."""

    def __init__(self, secret: str) -> None:
        super().__init__(f"could not charge {secret}", secret, {"secret": secret})
        self.secret = secret


def leak(way: str, secret: str) -> None:  # noqa: C901 - one way after the other
    local_variable = secret  # noqa: F841 - what a tool that captures locals would find
    match way:
        case "terminal":
            raise Terminal("DECLINED", f"declined for '{secret}'")
        case "retryable":
            raise Retryable("HTTP_503", text=f"upstream said {secret!r}")
        case "unknown":
            raise Unknown("TIMEOUT", f"no answer about ({secret})")
        case "value":
            raise ValueError(secret)
        case "cause":
            try:
                raise Leaky(secret)
            except Leaky as inner:
                raise RuntimeError(f"while sending {secret}") from inner
        case "context":
            try:
                raise Leaky(secret)
            except Leaky:
                raise KeyError(secret)  # noqa: B904 - the context is what is tested
        case "group":
            raise ExceptionGroup(f"several {secret}", [Leaky(secret), ValueError(secret)])
        case "key":
            _ = dict[str, str]()[secret]
        case "url":
            raise ConnectionError(f"GET https://anna:{secret}@api.example/charge?token={secret} failed")
        case "exit":
            raise SystemExit(secret)


async def record(conn: Any, attempt: Attempt, settlement: object) -> None:
    """Where the payload says so, a failure of the user's own SQL: DETAIL shows values."""
    if attempt.payload["way"] == "record":
        await conn.execute("CREATE TEMP TABLE charged (card text PRIMARY KEY)")
        for _ in range(2):
            await conn.execute("INSERT INTO charged VALUES (%s)", [attempt.payload["secret"]])


@app.destination("async", policy=QUICKLY, in_doubt="hold", record=record)
async def as_coroutine(message: Attempt) -> None:
    leak(message.payload["way"], message.payload["secret"])


@app.destination("thread", policy=QUICKLY, in_doubt="hold", record=record)
def as_thread(message: Attempt) -> None:
    leak(message.payload["way"], message.headers["x-secret"])


async def check(message: Attempt) -> None:
    leak(message.payload["way"], message.payload["secret"])


@app.destination("checked", policy=QUICKLY, validate=check, in_doubt="hold")
async def checked(message: Attempt) -> None:
    raise AssertionError
