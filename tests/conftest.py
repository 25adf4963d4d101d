"""The ground that every test stands on: one server for the run, a database for the test.

`./test` starts the server and passes it in `REDRIVE_TEST_DSN`; without that, the first worker starts one and
the last one stops it. Tests marked `full` or `soak` run only when asked for. Modules whose promises must
hold on the oldest PostgreSQL too are marked `pg15`.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest

from redrive.operate import embedded
from tests.support import databases
from tests.support.order import is_left_out, long_ones_early, runs_on_15
from tests.support.scratch import scratch

pytest_plugins = ["pytester"]
ON_REQUEST = {"full": "--full", "soak": "--soak"}

# How long an example took to make says how busy the machine was, and nothing about the code.
hypothesis.settings.register_profile("redrive", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("redrive")

CrashServer = Callable[..., embedded.Server]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two kinds of tests that run on request."""
    for marker, option in ON_REQUEST.items():
        parser.addoption(option, action="store_true", default=False, help=f"also run tests marked {marker}")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected stays to the end, and garbage collection need not look through it: a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without what is certainly not asked for; None leaves the answer to others."""
    return is_left_out(collection_path, config.option.markexpr) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark by path; leave out what was not asked for, visibly, as deselected."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        if runs_on_15(item.path) and not item.get_closest_marker("own_server"):
            item.add_marker(pytest.mark.pg15)
        wanted = all(config.getoption(ON_REQUEST[name]) for name in ON_REQUEST if item.get_closest_marker(name))
        (kept if wanted else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = long_ones_early(kept, workers=int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.fixture(scope="session")
def server_dsn(testrun_uid: str) -> Iterator[str]:
    """The run's server, as its superuser. Tests make databases on it and change nothing else."""
    given = os.environ.get("REDRIVE_TEST_DSN")
    if given:
        yield given
        return
    home = Path(tempfile.gettempdir()) / f"redrive-test-{os.getuid()}-{testrun_uid[:12]}"
    home.mkdir(mode=0o711, exist_ok=True)
    server = embedded.start(home / "data", settings={"fsync": "off"})
    try:
        yield server.dsn
    finally:
        if server.close():
            shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def server_version(server_dsn: str) -> int:
    """The server's major version, such as 18."""
    return databases.server_major(server_dsn)


@pytest.fixture(scope="session")
def template(server_dsn: str) -> str:
    """The name of the migrated template database."""
    return databases.migrated_template(server_dsn)


@pytest.fixture(scope="session")
def administrator(server_dsn: str) -> Iterator[databases.Administrator]:
    """The connection that makes and drops the databases of the tests."""
    with databases.administrator(server_dsn) as connection:
        yield connection


@pytest.fixture
def database(server_dsn: str, template: str, administrator: databases.Administrator) -> Iterator[str]:
    """The DSN of a fresh, migrated database."""
    with databases.fresh_database(server_dsn, template=template, over=administrator) as dsn:
        yield dsn


@pytest.fixture
def empty_database(server_dsn: str, administrator: databases.Administrator) -> Iterator[str]:
    """The DSN of a fresh database without the schema."""
    with databases.fresh_database(server_dsn, over=administrator) as dsn:
        yield dsn


@pytest.fixture
def crash_server() -> Iterator[CrashServer]:
    """Makes private servers, durable ones, that a test may stop or kill; whatever still runs is stopped.

    `crash_server()` starts a new one; `crash_server(server.data_dir)` starts it again on the same data.
    """
    with ExitStack() as stack:

        def start(
            data_dir: Path | None = None,
            *,
            port: int | None = None,
            settings: Mapping[str, str] | None = None,
        ) -> embedded.Server:
            place = data_dir or stack.enter_context(scratch("redrive-crash-")) / "data"
            server = embedded.start(place, port=port, settings={"shared_buffers": "16MB", **(settings or {})})
            stack.callback(server.stop)
            return server

        yield start
