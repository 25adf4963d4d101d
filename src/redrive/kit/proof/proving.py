"""What every proof begins with: a directory, a database and an environment; and how long it took, for the report."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redrive.kit.proof.database import open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.environment import ProofEnvironment
from redrive.system import System

Kind = TypeVar("Kind", bound=ProofEnvironment)


@dataclass(frozen=True, kw_only=True)
class Proving(Generic[Kind]):
    """A proof under way. began: on the monotonic clock."""

    environment: Kind
    seed: int
    scale: float
    server: str
    began: float

    def facts(self) -> dict[str, Any]:
        """What a `ProofReport` says of every proof."""
        seconds = time.monotonic() - self.began
        return {"seed": self.seed, "scale": self.scale, "server": self.server, "seconds": seconds}


@contextmanager
def proving(
    kind: type[Kind], *, seed: int, scale: float, dsn: str | None, systems: Sequence[System] = ()
) -> Iterator[Proving[Kind]]:
    """kind: the class of the environment. dsn: None = a server of its own."""
    began = time.monotonic()
    with (
        open_directory() as directory,
        open_proof_database(directory, dsn, systems=systems) as database,
        kind(directory, database.dsn) as environment,
    ):
        yield Proving(environment=environment, seed=seed, scale=scale, server=database.server, began=began)
