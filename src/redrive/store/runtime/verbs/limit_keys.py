"""Limit keys in PostgreSQL: parts of a destination with a pause, a breaker and a rate of their own (G-31)."""

from redrive.ports import Booked, DestinationVerbs, LimitKeyState, Now, Opened
from redrive.store.runtime.verbs import from_port
from redrive.store.runtime.verbs.connected import Connected


class PostgresLimitKeys(Connected):
    """The verbs of limit keys of `redrive.ports.DestinationVerbs`."""

    limit_keys = from_port.rows(DestinationVerbs.limit_keys, LimitKeyState)
    pause_key = from_port.value(DestinationVerbs.pause_key)
    resume_key = from_port.value(DestinationVerbs.resume_key)
    rest_key = from_port.value(DestinationVerbs.rest_key)
    open_key = from_port.row(DestinationVerbs.open_key, Opened)
    probe_key = from_port.value(DestinationVerbs.probe_key)
    close_key = from_port.value(DestinationVerbs.close_key)

    async def book_key(
        self, destination: str, key: str, *, count: int, rate: float, most_seconds: float, now: Now = None
    ) -> Booked:
        (row,) = await self.call("book_key_1", destination, key, count, rate, most_seconds, now)
        return Booked(row.seconds, row.booked)
