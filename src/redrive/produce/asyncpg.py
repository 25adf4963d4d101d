"""Statements over the caller's asyncpg connection."""

from typing import Any, TypeVar

import asyncpg

from redrive.produce import driver
from redrive.produce.driver import Within
from redrive.produce.protocol import Rows, Statement, Steps

T = TypeVar("T")


async def arun(conn: Any, steps: Steps[T], within: Within) -> T:
    if within is Within.NONE and conn.is_in_transaction():
        driver.refuse_open_transaction()
    if within is Within.OPEN and not conn.is_in_transaction():
        driver.refuse_autocommit("`async with conn.transaction():`")

    async def execute(statement: Statement) -> Rows:
        query, values = statement
        if not driver.has_rows(query):
            await conn.execute(query)
            return ()
        rows: Rows = await conn.fetch(driver.with_dollars(query), *values, record_class=asyncpg.Record)
        return rows

    try:
        return await driver.acarry(steps, execute)
    except asyncpg.PostgresError as error:
        driver.reraise(error, sqlstate=error.sqlstate, text=error.message)
