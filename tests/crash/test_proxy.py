"""The wire of the proofs: whatever is under way when it ends, no socket is left open."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path

import pytest

from redrive.kit.proof.proxy import SOCKET_NAME, Proxy
from tests.support.scratch import scratch


@pytest.mark.parametrize("server", ["answers", "never accepts"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 20])
def test_no_socket_is_left_open_however_far_a_connection_has_come(steps: int, server: str) -> None:
    async def begin_and_end(place: Path) -> None:
        target = place / "server"
        target.mkdir()
        answering = await asyncio.start_unix_server(lambda _, writer: writer.close(), target / SOCKET_NAME)
        if server == "never accepts":
            asyncio.get_running_loop().remove_reader(answering.sockets[0].fileno())
        async with Proxy(place, f"host={target} port=5432 dbname=x"):
            _, writer = await asyncio.open_unix_connection(place / SOCKET_NAME)
            for _ in range(steps):
                await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        answering.close()

    gc.collect()  # of earlier tests
    with scratch("redrive-prove-") as place, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(begin_and_end(place))
        gc.collect()
    assert [str(one.message) for one in seen if one.category is ResourceWarning] == []
