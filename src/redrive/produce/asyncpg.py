"""Statements over an asyncpg connection that belongs to the caller. Imported only after one was handed in."""

from __future__ import annotations

from typing import Any, TypeVar

import asyncpg

from redrive.produce.driver import (
    Within,
    acarry,
    has_rows,
    refuse_autocommit,
    refuse_open_transaction,
    reraise,
    with_dollars,
)
from redrive.produce.protocol import Rows, Statement, Steps

T = TypeVar("T")


async def arun(conn: Any, steps: Steps[T], within: Within) -> T:
    if within is Within.NONE and conn.is_in_transaction():
        refuse_open_transaction()
    if within is Within.OPEN and not conn.is_in_transaction():
        refuse_autocommit("`async with conn.transaction():`")

    async def execute(statement: Statement) -> Rows:
        query, values = statement
        if not has_rows(query):
            await conn.execute(query)
            return ()
        rows: Rows = await conn.fetch(with_dollars(query), *values, record_class=asyncpg.Record)
        return rows

    try:
        return await acarry(steps, execute)
    except asyncpg.PostgresError as error:
        reraise(error, sqlstate=error.sqlstate, text=error.message)
