"""Payments: strict order of a participant's payments, never paid twice, every attempt on record.

    payments.submit(conn, payments.Instruction(...))          # in your transaction: business row, number, message
    app.include(payments.with_rails([payments.Rail(...)]))    # what a relay runs; or [payments.rails.NAME] in a file

Importing this needs no library of its extra.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive import System
from redrive.kit import loader, modules_of
from redrive.systems.payments.cli import PROVE_OPTIONS, command
from redrive.systems.payments.views import VIEWS

if TYPE_CHECKING:
    # isort: off
    # fmt: off
    from redrive.systems.payments.names import Meaning as Meaning
    from redrive.systems.payments.rails import Rail as Rail, with_rails as with_rails
    from redrive.systems.payments.submission import (
        Submitted as Submitted, aadd_participant as aadd_participant, add_participant as add_participant,
        asubmit as asubmit, submit as submit,
    )
    from redrive.systems.payments.validation import Instruction as Instruction, PaymentRefused as PaymentRefused
    # fmt: on
    # isort: on

_MODULE_OF = modules_of(
    {
        "redrive.systems.payments.names": "Meaning",
        "redrive.systems.payments.rails": "Rail with_rails",
        "redrive.systems.payments.submission": "Submitted aadd_participant add_participant asubmit submit",
        "redrive.systems.payments.validation": "Instruction PaymentRefused",
    }
)
__all__ = sorted([*_MODULE_OF, "system"])  # noqa: PLE0605 - the names are listed once
if not TYPE_CHECKING:
    __getattr__ = loader(__name__, _MODULE_OF)


def _from_settings(table: Mapping[str, Any], file: Path) -> System:
    from redrive.systems.payments.toml_rails import from_settings

    return from_settings(table, file)


def _prove(**values: Any) -> Any:
    """Pay ten thousand times over rails that lose replies, pay late and refuse, while relays are killed.

    PostgreSQL is stopped at once, too. Each instruction must have one effect in the rails' own ledgers, to the cent, in
    the order of its participant; the books must agree. Then a rail that forgets tokens pays later than it should: what
    only a person can judge must be held, and not be paid twice.

    Then random histories, on rails of all abilities: producers that submit again, people who requeue, deny, edit,
    replay, copy, discard, cancel and skip at random, relays that are killed and frozen, databases that are restored and
    promoted. Each instruction must have one effect in the rail's ledger, or none and not be reported as paid. A history
    that is violated is shrunk and printed. Exit code 1 means that one of these is not so.
    """
    from redrive.systems.payments.prove.prove import prove

    return prove(**values)


def _demo(**values: Any) -> int:
    """Nine payments over three rails, told as they happen."""
    from redrive.kit.demo import Demo
    from redrive.systems.payments.demo.play import run

    console = values.pop("console")
    return run(Demo(**values), console)


def _router() -> Any:
    from redrive.systems.payments.router import router

    return router


system = System(
    name="payments",
    migrations=files(__name__) / "sql",
    cli=command,
    router=_router,
    views=VIEWS,
    demo=_demo,
    prove=_prove,
    prove_options=PROVE_OPTIONS,
    from_settings=_from_settings,
)
