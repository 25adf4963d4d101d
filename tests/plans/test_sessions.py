"""Which of its connections a store runs a statement on (store/runtime/sessions.py)."""

from __future__ import annotations

from contextlib import AsyncExitStack

from redrive.store.runtime.sessions import Sessions


async def _pid(sessions: Sessions, statement: str) -> int:
    async with sessions.session(statement) as conn:
        return conn.info.backend_pid


async def _opened(sessions: Sessions, *statements: str) -> list[int]:
    """All at once, so that each has a connection of its own."""
    async with AsyncExitStack() as stack:
        return [
            (await stack.enter_async_context(sessions.session(statement))).info.backend_pid for statement in statements
        ]


async def test_a_statement_goes_where_it_was_run_before(database: str) -> None:
    sessions = Sessions(database, limit=3, application_name="test")
    try:
        claiming, settling, rare = await _opened(sessions, "claim", "settle", "rare")
        assert [await _pid(sessions, one) for one in ("settle", "claim", "claim", "settle")] == [
            *(settling, claiming, claiming, settling)
        ]
        assert await _pid(sessions, "never before") == rare
    finally:
        await sessions.close()


async def test_what_is_not_idle_is_not_waited_for(database: str) -> None:
    sessions = Sessions(database, limit=2, application_name="test")
    try:
        claiming, other = await _opened(sessions, "claim", "settle")
        async with sessions.session("claim") as conn:
            assert conn.info.backend_pid == claiming
            assert await _pid(sessions, "claim") == other
    finally:
        await sessions.close()
