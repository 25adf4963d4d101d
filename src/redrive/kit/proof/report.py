"""The report of a proof: how to run it again, what was done, what was violated."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

Progress = Callable[[str, int, int], None]


def commit_of_the_code() -> str | None:
    """Where it runs from a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],  # noqa: S607 - of the PATH
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


@dataclass(frozen=True, kw_only=True)
class ProofReport(ABC):
    """violations: sentences, and the scripts of histories."""

    proof: ClassVar[str]
    seed: int
    scale: float
    commit: str | None = field(default_factory=commit_of_the_code)
    server: str
    seconds: float
    counts: Mapping[str, int]
    violations: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def command(self) -> str:
        """Runs it again."""
        return f"redrive prove {self.proof} --seed {self.seed} --scale {self.scale:g}"

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}

    def lines(self) -> Iterator[str]:
        yield f"{self.command}{of_commit(self.commit)}"
        yield f"{self.server}, {self.seconds:.0f} s"
        yield from self.figures()
        yield ""
        if self.ok:
            yield from self.verdict()
            return
        yield f"{len(self.violations)} violations:"
        yield from (f"  {line}" for sentence in self.violations for line in sentence.splitlines())

    def figures(self) -> Iterator[str]:
        yield from table("What happened", self.counts)

    @abstractmethod
    def verdict(self) -> Iterator[str]:
        """What holds, where nothing was violated."""


def bound(count: int) -> float:
    """With no violation in n tries the rate is below 3/n, at 95 % confidence."""
    return min(1.0, 3 / max(count, 1))


def table(title: str, values: Mapping[str, int]) -> Iterator[str]:
    yield ""
    yield title
    width = max((len(f"{value:,}") for value in values.values()), default=1)
    for name, value in values.items():
        yield f"  {value:>{width},}  {name}"


def of_commit(commit: str | None) -> str:
    return f", commit {commit}" if commit else ""
