"""What tests of your own stand on.

For an application: `assert_enqueued` and `assert_parked` look into the test's own transaction, `drain` delivers inside
it, `inline` delivers at once, `ManualClock` lets retries come due, `ScriptedTransport` answers as it is told; the same
as fixtures for pytest (`plugin.py`); `make_attempt` calls a handler without all that. For a transport of your own:
`TRANSPORT_CHECKS`.

Each name is loaded when it is first used: pytest loads the plugin, and with it this module, in every run.
"""

from typing import TYPE_CHECKING

from redrive.lazy import export

if TYPE_CHECKING:
    # isort: off
    # fmt: off
    from redrive.testing.attempts import make_attempt as make_attempt
    from redrive.testing.clock import ManualClock as ManualClock
    from redrive.testing.draining import Drained as Drained, adrain as adrain, drain as drain
    from redrive.testing.inlining import inline as inline
    from redrive.testing.looking import (
        Enqueued as Enqueued, Parked as Parked, aassert_enqueued as aassert_enqueued, aassert_parked as aassert_parked,
        aenqueued as aenqueued, aparked as aparked, assert_enqueued as assert_enqueued, assert_parked as assert_parked,
        enqueued as enqueued, parked as parked,
    )
    from redrive.testing.script import ScriptedTransport as ScriptedTransport, Slow as Slow, rewired as rewired
    from redrive.testing.sources import ScriptedSource as ScriptedSource
    from redrive.testing.transports import (
        TRANSPORT_CHECKS as TRANSPORT_CHECKS, Condition as Condition, TransportSubject as TransportSubject,
    )
    # fmt: on
    # isort: on

__all__ = export(  # noqa: PLE0605 - the names are listed once
    __name__,
    {
        "attempts": "make_attempt",
        "clock": "ManualClock",
        "draining": "Drained adrain drain",
        "inlining": "inline",
        "looking": "Enqueued Parked aassert_enqueued aassert_parked aenqueued aparked assert_enqueued "
        "assert_parked enqueued parked",
        "script": "ScriptedTransport Slow rewired",
        "sources": "ScriptedSource",
        "transports": "Condition TRANSPORT_CHECKS TransportSubject",
    },
)


def __dir__() -> list[str]:
    return list(__all__)
