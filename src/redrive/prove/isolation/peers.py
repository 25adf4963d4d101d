"""Peers of the HTTP cases, each in a process of its own: `python -m redrive.prove.isolation.peers KIND` says its port.

well      answers 200 at once
resting   answers 429 with Retry-After
endless   interim replies without end, and never an answer
dribbling a header, byte by byte, and never its end
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

DRIBBLE_SECONDS: Final = 0.01
INTERIM: Final = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


async def well(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def resting(writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    await writer.drain()


async def endless(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(INTERIM * 1000)
        await writer.drain()


async def dribbling(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(DRIBBLE_SECONDS)


KINDS: Final = {kind.__name__: kind for kind in (well, resting, endless, dribbling)}


@contextmanager
def peer(kind: str) -> Iterator[str]:
    """One such peer; its URL."""
    command = [sys.executable, "-m", "redrive.prove.isolation.peers", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.kill()


async def _serve(kind: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await KINDS[kind](writer)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
