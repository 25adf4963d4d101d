"""What tests of your own stand on.

For an application: `assert_enqueued` and `assert_parked` look into the test's own transaction, `drain` delivers inside
it, `inline` delivers at once, `ManualClock` lets retries come due, `ScriptedTransport` answers as it is told; the same
as fixtures for pytest (`plugin.py`); `make_attempt` calls a handler without all that. For a transport of your own:
`TRANSPORT_CHECKS`.

Each name is loaded when it is first used: pytest loads the plugin, and with it this module, in every run.
"""

from typing import TYPE_CHECKING

from redrive.lazy import loader, modules_of

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

_HOME = {
    "redrive.testing.attempts": "make_attempt",
    "redrive.testing.clock": "ManualClock",
    "redrive.testing.draining": "Drained adrain drain",
    "redrive.testing.inlining": "inline",
    "redrive.testing.looking": "Enqueued Parked aassert_enqueued aassert_parked aenqueued aparked assert_enqueued "
    "assert_parked enqueued parked",
    "redrive.testing.script": "ScriptedTransport Slow rewired",
    "redrive.testing.sources": "ScriptedSource",
    "redrive.testing.transports": "Condition TRANSPORT_CHECKS TransportSubject",
}
_MODULE_OF = modules_of(_HOME)

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - one list of names, not two


if not TYPE_CHECKING:  # a type checker that sees it takes every misspelt name for one of ours
    __getattr__ = loader(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return list(__all__)
