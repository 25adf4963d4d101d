"""The database of a history becomes writable again for everybody who works on it."""

from __future__ import annotations

import psycopg
import pytest

from redrive.kit.proof.history_environment import OPERATOR_ROLE, HistoryDatabase, HistoryEnvironment
from redrive.prove.histories.processes import MODULE
from tests.support.scratch import scratch

PAUSE = "SELECT redrive.pause_1('mail', 'alice', 'a test')"


async def test_a_role_that_connected_during_a_read_only_phase_writes_after_it() -> None:
    with scratch("redrive-history-") as directory:
        async with (
            HistoryEnvironment(directory, MODULE) as environment,
            HistoryDatabase(environment, "read_only", own_server=False) as database,
        ):
            await database.set_read_only(True)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await database.rows(PAUSE, role=OPERATOR_ROLE)
            await database.set_read_only(False)
            assert await database.rows(PAUSE, role=OPERATOR_ROLE) == [(True,)]
