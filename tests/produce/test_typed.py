"""An app that knows the type of a destination's payloads enqueues values of that type."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from redrive.app import App
from redrive.message import NewMessage


@dataclass
class Greeting:
    to: str


async def test_values_of_the_type_are_enqueued_by_all_four_calls(database: str) -> None:
    app = App()
    app.destination("mail", schema=Greeting)(print)
    app.destination("plain")(print)
    with psycopg.connect(database) as connection:
        first = app.enqueue(connection, "mail", Greeting("a"), key="k")
        assert app.enqueue(connection, "mail", {"to": "a"}, key="k").id == first.id  # one value, one fingerprint
        app.enqueue_many(connection, [NewMessage("mail", Greeting("b")), NewMessage("plain", [1])])
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await app.aenqueue(connection, "mail", Greeting("c"), priority="high")
        await app.aenqueue_many(connection, [NewMessage("mail", Greeting("d"))])
    with psycopg.connect(database) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM redrive.message ORDER BY id")]
    assert bodies == [b'{"to":"a"}', b'{"to":"b"}', b"[1]", b'{"to":"c"}', b'{"to":"d"}']
