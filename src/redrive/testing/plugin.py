"""Fixtures for pytest: installed with the package, idle until a test asks for one.

Say where your app is (`redrive_app = shop:app` in pytest's configuration, or a fixture of that name), and give the
connection or session of your tests as a fixture `redrive_connection`. Then:

    def test_sign_up(redrive_connection, redrive_drain):
        sign_up(redrive_connection, "ada@example.com")
        assert len(redrive_drain().delivered) == 1

Loaded with every run of pytest, so nothing is imported here before a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.testing.clock import ManualClock
    from redrive.testing.draining import Drained
    from redrive.testing.script import ScriptedTransport


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("redrive_app", "the app of your application as module:name, for the fixtures of redrive.testing")


@pytest.fixture
def redrive_connection() -> Any:
    """Yours to define: the connection or session that the code under test uses."""
    raise pytest.UsageError(
        "Define a fixture `redrive_connection` that gives the connection or session of your tests, one that is rolled"
        " back afterwards."
    )


@pytest.fixture
def redrive_app(pytestconfig: pytest.Config) -> App:
    """The app that the setting `redrive_app` names; a copy, so that a test may rewire it."""
    spec = pytestconfig.getini("redrive_app")
    if not spec:
        raise pytest.UsageError(
            "Say where your app is: `redrive_app = shop:app` in pytest's configuration, or define a fixture"
            " `redrive_app` that gives it."
        )
    from redrive.relay.load_app import load_app
    from redrive.testing.script import rewired

    return rewired(load_app(spec), {})


@pytest.fixture
def redrive_clock() -> ManualClock:
    """What the drains of this test take for the time: advance it, and retries come due."""
    from redrive.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def redrive_drain(redrive_connection: Any, redrive_app: App, redrive_clock: ManualClock) -> Callable[..., Drained]:
    """Deliver what is due; `to_the_end=True`: through every retry."""
    from redrive.testing.draining import drain

    return lambda *, to_the_end=False: drain(
        redrive_connection, redrive_app, clock=redrive_clock, to_the_end=to_the_end
    )


@pytest.fixture
def redrive_adrain(
    redrive_connection: Any, redrive_app: App, redrive_clock: ManualClock
) -> Callable[..., Awaitable[Drained]]:
    """`redrive_drain`, to be awaited, for an asynchronous connection."""
    from redrive.testing.draining import adrain

    return lambda *, to_the_end=False: adrain(
        redrive_connection, redrive_app, clock=redrive_clock, to_the_end=to_the_end
    )


@pytest.fixture
def redrive_inline(redrive_connection: Any, redrive_app: App, redrive_clock: ManualClock) -> Iterator[Drained]:
    """While this test runs, what is enqueued on its connection is delivered before `enqueue` returns."""
    from redrive.testing.inlining import inline

    with inline(redrive_connection, redrive_app, clock=redrive_clock) as drained:
        yield drained


@pytest.fixture
def redrive_script(redrive_app: App) -> Iterator[Callable[..., ScriptedTransport]]:
    """`redrive_script("mail", Retryable("BUSY"), Delivered())`: how a destination answers in this test.

    At its end every script must have been used up.
    """
    from dataclasses import replace

    from redrive.testing.script import ScriptedTransport

    before = dict(redrive_app.destinations)
    scripts: list[ScriptedTransport] = []

    def script(destination: str, *steps: Any, lookups: Any = ()) -> ScriptedTransport:
        scripts.append(ScriptedTransport(*steps, lookups=lookups))
        redrive_app.destinations[destination] = replace(before[destination], transport=scripts[-1])
        return scripts[-1]

    yield script
    redrive_app.destinations.update(before)
    for one in scripts:
        one.assert_used_up()
