"""Payments: strict order of a participant's payments, never paid twice, every attempt on record.

    payments.submit(conn, payments.Instruction(...))          # in your transaction: business row, number, message
    app.include(payments.with_rails([payments.Rail(...)]))    # what a relay runs; or [payments.rails.NAME] in a file

Importing this needs no library of its extra.
"""

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from redrive import System
from redrive.kit import export
from redrive.kit.parts import later, router_of
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

__all__ = export(  # noqa: PLE0605 - the names are listed once
    __name__,
    {
        "names": "Meaning",
        "rails": "Rail with_rails",
        "submission": "Submitted aadd_participant add_participant asubmit submit",
        "validation": "Instruction PaymentRefused",
    },
    also=["system"],
)

_PROVE: Final = """\
Pay ten thousand times over rails that lose replies, pay late and refuse, while relays are killed.

PostgreSQL is stopped at once, too. Each instruction must have one effect in the rails' own ledgers, to the cent, in
the order of its participant; the books must agree. Then a rail that forgets tokens pays later than it should: what
only a person can judge must be held, and not be paid twice.

Then random histories, on rails of all abilities: producers that submit again, people who requeue, deny, edit, replay,
copy, discard, cancel and skip at random, relays that are killed and frozen, databases that are restored and promoted.
Each instruction must have one effect in the rail's ledger, or none and not be reported as paid. A history that is
violated is shrunk and printed. Exit code 1 means that one of these is not so.
"""

system = System(
    name="payments",
    migrations=files(__name__) / "sql",
    cli=command,
    router=router_of(f"{__name__}.router"),
    views=VIEWS,
    demo=later(f"{__name__}.demo.play", "run"),
    prove=later(f"{__name__}.prove.prove", "prove", about=_PROVE),
    prove_options=PROVE_OPTIONS,
    from_settings=later(f"{__name__}.toml_rails", "from_settings"),
)
