"""Runs planted bugs by hand: `python tests/mutants/run.py [--ci] [name ...]`, with REDRIVE_TEST_DSN set.

Prints a line per mutant and ends with 1 when one of them was not killed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.mutants.fork_server import ForkServer  # noqa: E402 - run by path
from tests.mutants.planted import KILLED, Mutant, copied, judge, mutants  # noqa: E402 - run by path


def main(arguments: list[str]) -> int:
    server_dsn = os.environ.get("REDRIVE_TEST_DSN")
    if not server_dsn:
        print("REDRIVE_TEST_DSN is not set; it names the server on which the mutants are tried.", file=sys.stderr)
        return 2
    with ForkServer() as forks, copied() as place:
        verdicts = [_try(mutant, server_dsn, forks, place) for mutant in _chosen(arguments)]
    print(f"{verdicts.count(KILLED)} of {len(verdicts)} mutants killed")
    return 0 if verdicts and set(verdicts) == {KILLED} else 1


def _chosen(arguments: list[str]) -> list[Mutant]:
    names = [argument for argument in arguments if not argument.startswith("--")]
    chosen = [mutant for mutant in mutants() if not names or mutant.name in names]
    return [mutant for mutant in chosen if mutant.in_ci] if "--ci" in arguments else chosen


def _try(mutant: Mutant, server_dsn: str, forks: ForkServer, place: Path) -> str:
    began = time.monotonic()
    verdict = judge(mutant, server_dsn, forks, place)
    print(f"{mutant.name}: {verdict} ({time.monotonic() - began:.1f} s) by {mutant.test}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
