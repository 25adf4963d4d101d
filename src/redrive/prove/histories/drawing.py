"""Random histories of the engine: a seed becomes a list of commands. Pure.

They say what producers enqueue, cancel and hold open, what goes wrong with each attempt, what operators do, and
what breaks. Commands do not depend on each other, so that a history that fails can be shrunk. `act` stands for what
operators do next; it is drawn when it is known where the messages are (`steering`).
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from redrive.kit.proof import commands
from redrive.kit.proof.commands import Command, HistoryWriter, ScriptReader
from redrive.prove.histories.destinations import (
    DESTINATIONS,
    HELD,
    HOSTILE,
    LIMITED,
    OF_RECORDS,
    PLAIN,
    RECORDED,
    REMEMBERING,
    THREADED,
)

VERBS: Final = frozenset(
    {
        *("enqueue", "cancel", "begin", "commit", "rollback"),
        *("act", "requeue", "discard", "confirm", "deny", "repair", "edit", "skip", "stop_message", "copy", "replay"),
        *("pause", "resume", "group", "triage"),
        *("wait", "quiet", "relay", "kill", "freeze", "thaw", "stop", "cut", "stop_server", "read_only", "spoil"),
        "jump_clock",
    }
)
TENANTS: Final = ("a", "b")
KEYS: Final = ("k1", "k2")
OK: Final = "ok"
STEPS_MAX: Final = 60
# With these the handler is told nothing, or too little.
_UNCERTAIN: Final = ("lost_reply", "lost_reply", "garbage", "reset", "hang", "slow")
_CERTAIN: Final = ("refuse", "refuse", "later", "busy")
_LOOKUPS: Final = ("cannot_tell", "lookup_lost")
_HEAD: Final = re.compile(r"history (?P<seed>\d+): (?P<relays>\d+) relays(?P<own>, a server of its own)?")
SCRIPTS: Final = ScriptReader(_HEAD, VERBS, "history SEED: N relays")


class History(commands.History):
    work = "enqueue"

    @property
    def head(self) -> str:
        return f"history {self.seed}: {self.relays} relays{', a server of its own' * self.own_server}"


def read_script(text: str) -> History:
    head, found = SCRIPTS.read(text)
    return History(
        seed=int(head["seed"]), relays=int(head["relays"]), own_server=head["own"] is not None, commands=found
    )


def history(seed: int) -> History:
    return _Writer(seed).written()


class _Writer(HistoryWriter):
    def __init__(self, seed: int) -> None:
        super().__init__("engine", seed)
        self._messages: list[str] = []
        self._open: list[str] = []
        self._transactions = 0
        self._own_server = self._chance.random() < 0.25
        self._relays = self._chance.choice([1, 2, 2, 3])

    def written(self) -> History:
        for _ in range(self._chance.randint(2, 4)):
            self._enqueue()
        themes = [self._held_open, self._held_open, self._people, self._broken, self._hostile, self._away, self._order]
        if self._own_server:
            themes += [self._away] * 5
        while len(self._commands) < 18 or (len(self._commands) < 45 and self._chance.random() < 0.75):
            self._chance.choice(themes)()
        for name in tuple(self._open):
            self._end(name)
        return History(
            seed=self._seed,
            relays=self._relays,
            own_server=self._own_server,
            commands=tuple(self._commands[:STEPS_MAX]),
        )

    # what histories are about

    def _held_open(self) -> None:
        """An application has cancelled, or enqueued for a key, and does not commit for a while."""
        if self._chance.random() < 0.5:
            self._enqueue(faults=[self._chance.choice(["hang", "slow", "never"])])
            self._pause("wait", 0.2, 0.8)
            name = self._begin()
            self._add("cancel", message=self._messages[-1], tx=name)  # while it is in flight
        else:
            name = self._begin()
        for _ in range(self._chance.randint(1, 3)):
            self._chance.choice([self._cancel, self._cancel, self._enqueue])(name)
        for _ in range(self._chance.randint(1, 4)):
            self._chance.choice(
                [self._enqueue, self._enqueue, self._wait, self._relay_fault, self._act, self._stop, self._quiet]
            )()
        self._sometimes(0.3, lambda: self._pause("wait", 3.0, 7.0, 1))
        self._sometimes(0.8, lambda: self._end(name))

    def _order(self) -> None:
        """Messages of one key, some of which go wrong."""
        key, tenant = self._chance.choice(KEYS), self._chance.choice(TENANTS)
        for _ in range(self._chance.randint(3, 5)):
            self._enqueue(key=key, tenant=tenant)
        for _ in range(self._chance.randint(1, 3)):
            self._chance.choice([self._wait, self._act, self._act, self._relay_fault, self._cancel])()

    def _people(self) -> None:
        self._enqueue()
        for _ in range(self._chance.randint(3, 6)):
            self._calm()
            self._act()

    def _broken(self) -> None:
        for _ in range(self._chance.randint(2, 4)):
            self._enqueue()
            self._relay_fault()
            self._sometimes(0.4, self._cancel)
            self._sometimes(0.5, partial(self._add, "thaw"))
            self._sometimes(0.4, self._act)
        self._calm()

    def _hostile(self) -> None:
        """Handlers that never return, block, end their process or say nonsense."""
        fault = self._chance.choice(HOSTILE)
        for _ in range(self._chance.randint(1, 5) if fault in ("never", "stubborn") else 1):
            destination = self._chance.choice([THREADED, THREADED, *DESTINATIONS])
            self._enqueue(destination=destination, faults=[fault] * self._chance.choice([1, 1, 2, 4]))
        self._enqueue()
        self._sometimes(0.3, self._spoil)
        self._calm()
        self._sometimes(0.6, self._act)

    def _away(self) -> None:
        """The database is away, refuses to write, or its replies are lost."""
        self._sometimes(0.6, self._enqueue)
        kinds: list[Callable[[], None]] = [self._cut, self._cut, self._read_only]
        if self._own_server:
            stop_server = partial(self._add, "stop_server")
            kinds += [stop_server, stop_server, self._read_only, self._jump_clock, self._jump_clock]
        self._chance.choice(kinds)()
        self._enqueue()
        self._sometimes(0.5, self._calm)

    # commands

    def _begin(self) -> str:
        self._transactions += 1
        name = f"t-{self._transactions}"
        self._open.append(name)
        self._add("begin", tx=name)
        return name

    def _end(self, name: str) -> None:
        self._open.remove(name)
        self._add("commit" if self._chance.random() < 0.6 else "rollback", tx=name)

    def _enqueue(
        self,
        tx: str | None = None,
        *,
        destination: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        name = f"m-{len(self._messages) + 1}"
        self._messages.append(name)
        where = destination or self._chance.choice(DESTINATIONS)
        values: dict[str, Any] = {
            "message": name,
            "destination": where,
            "tenant": tenant or self._chance.choice(TENANTS),
            "faults": list(faults) or self._faults(where),
        }
        if key or self._chance.random() < 0.35:
            values["key"] = key or self._chance.choice(KEYS)
        if self._chance.random() < 0.05:
            values["expires_seconds"] = round(self._chance.uniform(0.1, 3.0), 1)
        if tx:
            values["tx"] = tx
        self._add("enqueue", **values)

    def _faults(self, destination: str) -> list[str]:
        return [self._fault(destination) for _ in range(self._chance.choice([1, 1, 2, 3]))]

    def _fault(self, destination: str) -> str:
        drawn = self._chance.random()
        if drawn < 0.4:
            return OK
        if drawn < 0.6:
            return self._chance.choice(_UNCERTAIN)
        if drawn < 0.85:
            return self._chance.choice(_CERTAIN)
        if destination == RECORDED:
            return self._chance.choice(OF_RECORDS)
        if destination in REMEMBERING and drawn < 0.92:
            return self._chance.choice(_LOOKUPS)
        return self._chance.choice(HOSTILE) if drawn > 0.95 else OK

    def _cancel(self, tx: str | None = None) -> None:
        message = self._chance.choice(self._messages[-6:])
        self._add("cancel", message=message, **({"tx": tx} if tx else {}))

    def _act(self) -> None:
        self._add("act", draw=self._chance.randrange(1_000_000))

    def _wait(self) -> None:
        self._pause("wait", 0.02, 1.2)

    def _quiet(self) -> None:
        self._pause("quiet", 0.5, 3.0, 1)

    def _calm(self) -> None:
        self._chance.choice([self._quiet, self._quiet, self._wait])()

    def _relay_fault(self) -> None:
        self._sometimes(0.5, lambda: self._pause("wait", 0.0, 0.3, 3))
        number = self._chance.randrange(self._relays)
        match self._chance.choice(["kill", "kill", "freeze", "stop"]):
            case "kill":
                self._add("kill", relay=number, whole=self._chance.random() < 0.5)
            case "freeze":
                self._add("freeze", relay=number)
                self._sometimes(0.5, lambda: self._pause("wait", 0.1, 1.0))
                self._sometimes(0.7, lambda: self._add("thaw"))
            case _:
                self._stop()

    def _stop(self) -> None:
        self._add("stop", relay=self._chance.randrange(self._relays))

    def _cut(self) -> None:
        self._add("cut", at=self._chance.choice(["settle", "settle", "claim", "enqueue", "COMMIT", "anything"]))

    def _read_only(self) -> None:
        self._pause("read_only", 0.3, 3.0, 1)

    def _jump_clock(self) -> None:
        seconds = self._chance.choice([-7200.0, -600.0, -30.0, 30.0, 600.0, 7200.0])
        self._add("jump_clock", by_seconds=round(seconds * self._chance.uniform(0.5, 1.5), 1))
        if self._chance.random() < 0.4:  # while it is noticed, and dates are corrected
            self._pause("wait", 0.0, 0.5)
            self._add("kill", relay=self._chance.randrange(self._relays), whole=True)

    def _spoil(self) -> None:
        self._enqueue(destination=self._chance.choice([PLAIN, HELD, LIMITED]))
        self._commands.insert(-1, Command("pause", {"destination": self._commands[-1].values["destination"]}))
        self._add("spoil", message=self._messages[-1])
        self._add("resume", destination=self._commands[-2].values["destination"])
