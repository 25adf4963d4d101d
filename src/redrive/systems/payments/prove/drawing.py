"""Random histories: a seed becomes a rail with its abilities and a list of commands. Pure.

    history 0: rail with lookup only, no statement, 1 relays, timeout 0.3 s
      1 submit payment=pay-1 participant=p1 amount=5.00 faults=late -> new
      2 deny payment=pay-1 by=bob,carol -> delivered

Commands do not depend on each other: any of them can be left out, which is how a failing history is shrunk. `act` is
drawn later, when it is known where the payments are (`steering`). In a written history numbers, answers (after `->`)
and lines that begin with # are for people.

What people say about a rail that cannot be asked is true: there they deny, and end the pause after a restore, only when
the rail has not paid. Everywhere else they act at random, and the engine has to find out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, get_args

from redrive.kit.proof import commands
from redrive.kit.proof.commands import Command, HistoryWriter, ScriptReader
from redrive.systems.payments.rail.script import Fault, Profile

Ability = Literal["tl", "lo", "to", "no"]
PROFILES: Final[Mapping[Ability, Profile]] = {
    "tl": Profile.TOKEN_AND_LOOKUP,
    "lo": Profile.LOOKUP,
    "to": Profile.TOKEN,
    "no": Profile.NEITHER,
}
ABILITY_NAMES: Final[Mapping[Ability, str]] = {
    "tl": "token and lookup",
    "lo": "lookup only",
    "to": "token only",
    "no": "neither",
}
VERBS: Final = frozenset(
    {
        *("submit", "again", "second_key", "app_cancel", "pause", "resume", "reconcile", "acknowledge"),
        *("act", "requeue", "deny", "confirm", "edit", "replay", "copy", "discard", "cancel", "skip"),
        *("ready", "wait", "quiet", "relay", "kill", "freeze", "thaw", "cut", "stop_server", "backup", "restore"),
    }
)
RAIL_TYPE: Final = "sepa"
CURRENCY: Final = "EUR"
IBAN: Final = "DE75512108001245126199"
OTHER_IBAN: Final = "FR7630006000011234567890189"
PEOPLE: Final = ("alice", "bob", "carol")
APPROVER: Final = "carol"
# With these the sender is told nothing, or too little.
_UNCERTAIN: Final = (
    *(Fault.LOST_REPLY, Fault.LATE, Fault.LATE, Fault.SLOW_LATE, Fault.IN_PROGRESS, Fault.GARBAGE, Fault.ERROR_AFTER),
    *(Fault.ERROR_WITHOUT_CODE, Fault.BAD_GATEWAY, Fault.BAD_GATEWAY, Fault.RESET, Fault.HANG),
)
_REFUSED: Final = (Fault.INSUFFICIENT_FUNDS, Fault.ACCOUNT_CLOSED, Fault.ACCOUNT_CLOSED, Fault.THROTTLED)
_OK: Final = "ok"


@dataclass(frozen=True, kw_only=True)
class History(commands.History):
    """mute: at first the rail cannot tell what became of a payment. compares: relays compare the statement all the
    while. timeout_seconds: of a request; where it is long, an answer can come after the lease of its claim.
    """

    work = "submit"
    ability: Ability
    statement: bool
    mute: bool
    compares: bool
    timeout_seconds: float

    @property
    def head(self) -> str:
        return (
            f"history {self.seed}: {self.rail}, {self.relays} relays, timeout {self.timeout_seconds:g} s"
            f"{', at first it cannot tell' * self.mute}{', relays compare' * self.compares}"
            f"{', a server of its own' * self.own_server}"
        )

    @property
    def rail(self) -> str:
        return f"rail with {ABILITY_NAMES[self.ability]}, {'a' if self.statement else 'no'} statement"

    @property
    def submits(self) -> Sequence[Command]:
        return [command for command in self.commands if command.verb == "submit"]


_HEAD: Final = re.compile(
    rf"history (?P<seed>\d+): rail with (?P<rail>{'|'.join(ABILITY_NAMES.values())}),"
    r" (?P<statement>a|no) statement, (?P<relays>\d+) relays, timeout (?P<timeout>[\d.]+) s(?P<other>.*)"
)
SCRIPTS: Final = ScriptReader(_HEAD, VERBS, "history SEED: rail with")


def read_script(text: str) -> History:
    head, found = SCRIPTS.read(text)
    other = head["other"]
    return History(
        seed=int(head["seed"]),
        ability=next(ability for ability, name in ABILITY_NAMES.items() if name == head["rail"]),
        statement=head["statement"] == "a",
        own_server="a server of its own" in other,
        mute="at first it cannot tell" in other,
        compares="relays compare" in other,
        timeout_seconds=float(head["timeout"]),
        relays=int(head["relays"]),
        commands=found,
    )


def history(seed: int) -> History:
    return _Writer(seed).written()


class _Writer(HistoryWriter):
    def __init__(self, seed: int) -> None:
        super().__init__("payments", seed)
        self._payments: list[str] = []
        self._participants = [f"p{number}" for number in range(1, 1 + self._chance.choice([1, 1, 2]))]
        self._keys = 0
        self._ability: Ability = self._chance.choice(get_args(Ability))
        self._statement = self._chance.random() < 0.6
        self._own_server = self._chance.random() < 0.2
        self._relays = self._chance.choice([1, 1, 2])
        self._timeout_seconds = self._chance.choice([0.3, 0.3, 2.5])
        # A rail that refuses and pays all the same: people act on it only after its statement had time to show it.
        self._lies = self._statement and self._chance.random() < 0.25
        # A rail that cannot tell for a while: what is in doubt there is held.
        self._is_mute = self._chance.random() < 0.4

    def written(self) -> History:
        self._sometimes(0.85, lambda: self._add("ready"))
        for _ in range(self._chance.choice([1, 2, 3, 3])):
            self._submit()
        theme = self._chance.choice(
            [self._people, self._people, self._restored, self._restored, self._broken, self._mixed]
        )
        theme()
        return History(
            seed=self._seed,
            ability=self._ability,
            statement=self._statement,
            own_server=self._own_server,
            mute=self._is_mute,
            compares=self._statement and self._chance.random() < 0.5,
            timeout_seconds=self._timeout_seconds,
            relays=self._relays,
            commands=tuple(self._commands),
        )

    # what histories are about

    def _people(self) -> None:
        self._sometimes(0.3, self._overslept)
        for _ in range(self._chance.randint(4, 8)):
            self._calm()
            self._act()
            self._sometimes(0.25, self._reconcile)
            self._sometimes(0.2, self._second_key)
            self._sometimes(0.1, self._app_cancel)

    def _broken(self) -> None:
        self._sometimes(0.6, self._overslept)
        for _ in range(self._chance.randint(3, 5)):
            self._fault()
            self._sometimes(0.4, self._submit)
            self._sometimes(0.3, self._app_cancel)
            self._sometimes(0.5, self._thaw)
            self._calm()
            self._sometimes(0.6, self._act)
            self._sometimes(0.3, self._second_key)

    def _overslept(self) -> None:
        """A relay sleeps beyond its lease while the rail pays; the application cancels, and submits a second key."""
        self._timeout_seconds = 2.5
        self._sometimes(0.5, lambda: self._add("ready"))
        payment = self._new_payment()
        met = [self._chance.choice([Fault.SLOW_LATE, Fault.HANG, Fault.LATE]).value, self._met()]
        self._add("submit", payment=payment, participant=self._participants[0], amount="7.00", faults=met)
        self._pause("wait", 0.05, 0.3)
        self._sometimes(0.8, lambda: self._add("freeze", relay=0))
        self._sometimes(0.4, lambda: self._add("app_cancel", payment=payment))
        self._add("relay")
        self._sometimes(0.5, lambda: self._add("quiet", seconds=6.0))
        self._sometimes(0.3, self._act)
        self._sometimes(0.8, lambda: self._add("thaw"))
        self._sometimes(0.7, lambda: self._add("quiet", seconds=3.0))
        self._sometimes(0.6, self._act)
        self._sometimes(0.5, lambda: self._add("second_key", payment=payment, key=self._new_key(), **self._late()))

    def _restored(self) -> None:
        self._sometimes(0.5, self._calm)
        self._sometimes(0.3, lambda: self._add("pause", by=["alice"]))
        self._sometimes(0.6, self._submit)
        self._add("backup")
        self._sometimes(0.3, lambda: self._add("resume", by=["alice", APPROVER]))
        self._sometimes(0.6, self._submit)
        self._calm()
        self._sometimes(0.4, self._act)
        self._sometimes(0.4, self._reconcile)
        self._restore()
        for _ in range(self._chance.randint(3, 6)):
            self._chance.choice(
                [
                    *(self._again, self._act, self._act, self._act, self._reconcile, self._resume, self._second_key),
                    self._acknowledge,
                ]
            )()
            self._sometimes(0.6, self._calm)
        for payment in self._payments:
            self._add("again", payment=payment)

    def _mixed(self) -> None:
        self._add("backup")
        for _ in range(self._chance.randint(5, 10)):
            self._chance.choice(
                [
                    *(self._act, self._act, self._act, self._fault, self._submit, self._again, self._second_key),
                    *(self._app_cancel, self._reconcile, self._resume, self._calm, self._thaw, self._restore),
                ]
            )()
            self._sometimes(0.5, self._calm)

    # commands

    def _submit(self) -> None:
        self._add(
            "submit",
            payment=self._new_payment(),
            participant=self._chance.choice(self._participants),
            amount=str(Decimal(self._chance.randrange(1, 1_000_000)).scaleb(-2)),
            faults=[self._met() for _ in range(self._chance.choice([1, 1, 2, 3]))],
        )

    def _new_payment(self) -> str:
        self._payments.append(f"pay-{len(self._payments) + 1}")
        return self._payments[-1]

    def _met(self) -> str:
        drawn = self._chance.random()
        if self._lies and drawn < 0.4:
            return Fault.REFUSED_LATE.value
        if drawn < 0.45:
            return self._chance.choice(_UNCERTAIN).value
        if drawn < 0.92:
            return self._chance.choice(_REFUSED).value
        return _OK

    def _again(self) -> None:
        self._add("again", payment=self._chance.choice(self._payments))

    def _second_key(self) -> None:
        self._add("second_key", payment=self._chance.choice(self._payments), key=self._new_key(), **self._late())

    def _app_cancel(self) -> None:
        self._add("app_cancel", payment=self._chance.choice(self._payments))

    def _act(self) -> None:
        """`steering` draws which one, when the payments are where they are by then."""
        self._add("act", draw=self._chance.randrange(1_000_000), **self._late())

    def _new_key(self) -> str:
        self._keys += 1
        return f"key-{self._keys}"

    def _late(self) -> dict[str, Any]:
        """Where the rail may pay what it has refused, people act only after its statement had the time to show it."""
        return {"after_statement": True} if self._lies else {}

    def _who(self) -> list[str]:
        """One person, two, or one twice; the right pair most often."""
        first = self._chance.choice(PEOPLE)
        if self._chance.random() < 0.7:
            return [self._chance.choice(["alice", "bob"]), APPROVER]
        return [first, self._chance.choice(PEOPLE)] if self._chance.random() < 0.6 else [first]

    def _reconcile(self) -> None:
        self._add("reconcile")

    def _resume(self) -> None:
        self._add("resume", by=self._who())

    def _acknowledge(self) -> None:
        """As one that is explained by a refund; it is not."""
        self._add("acknowledge", by=self._who())

    def _calm(self) -> None:
        if self._chance.random() < 0.75:
            self._pause("quiet", 0.5, 4.0, 1)
        else:
            self._pause("wait", 0.02, 0.6)

    def _fault(self) -> None:
        kinds = ["kill", "kill", "freeze", "freeze", "cut", "cut"] + ["stop_server"] * (2 * self._own_server)
        match kind := self._chance.choice(kinds):
            case "kill" | "freeze":
                self._sometimes(0.5, lambda: self._pause("wait", 0.0, 0.15, 3))
                self._add(kind, relay=self._chance.randrange(self._relays))
                self._sometimes(0.5, lambda: self._add("relay"))
            case "cut":
                self._add("cut", at=self._chance.choice(["settle", "claim", "anything", "submit"]))
                self._sometimes(0.6, self._submit)
            case _:
                self._add(kind)

    def _thaw(self) -> None:
        self._add("thaw")

    def _restore(self) -> None:
        kinds = ["snapshot", "promotion"] if self._own_server else ["dump"]
        kind = self._chance.choice(kinds)
        values: dict[str, Any] = {"kind": kind, "relays": self._chance.choice(["kept", "killed"])}
        if kind == "promotion":
            values["overlap_seconds"] = round(self._chance.uniform(0.0, 0.4), 2)
        elif self._chance.random() < (0.3 if self._statement else 0.5):
            values["declared"] = True  # as the runbook of a restore says; else a statement or the relays' memory tells
        self._add("restore", **values)
