"""PgBouncer in front of a server that tests made, if it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.scratch import scratch
from tests.support.waiting import wait_until


@contextmanager
def pgbouncer(dsn: str, pool_mode: str) -> Iterator[str]:
    """The DSN of a pooler in front of that database."""
    program = shutil.which("pgbouncer") or pytest.skip("pgbouncer is not installed")
    server = conninfo_to_dict(dsn)
    target = " ".join(f"{key}={server[key]}" for key in ("host", "port", "user", "password") if server.get(key))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with scratch() as directory:
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"auth_type = any\nunix_socket_dir =\npool_mode = {pool_mode}\n"
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with subprocess.Popen([program, "-q", *user, str(settings)], stderr=subprocess.DEVNULL) as process:
            through = f"postgresql://anyone@127.0.0.1:{port}/{server['dbname']}"
            try:
                wait_until(lambda: answers(through), seconds=20, what="the pooler's first answer")
                yield through
            finally:
                process.terminate()


def answers(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False
