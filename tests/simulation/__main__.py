"""Runs simulated schedules, or, with --seed, shows one of them. Ends with 1 when something was violated."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "src")]

from tests.simulation.campaign import judge_all  # noqa: E402 - the source is found first
from tests.simulation.config import draw  # noqa: E402
from tests.simulation.schedule import run  # noqa: E402


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one schedule, and print what happened")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--count", type=int, default=2000, help="how many schedules (2000)")
    parser.add_argument("--workers", type=int, help="how many processes (one for each core)")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return show(options.seed)
    return run_many(range(options.first, options.first + options.count), options.workers)


def show(seed: int) -> int:
    print(draw(seed))
    ran = run(seed)
    print(*ran.trace.lines(), sep="\n")
    print(f"{len(ran.violations)} violations, {ran.seconds:.1f} s simulated, trace {ran.trace.digest()}")
    return 1 if ran.violations else 0


def run_many(seeds: range, workers: int | None) -> int:
    began = time.monotonic()
    verdicts = []
    for verdict in judge_all(seeds, workers=workers):
        verdicts.append(verdict)
        if verdict.violations:
            print(verdict.words, flush=True)
    violated = sum(bool(verdict.violations) for verdict in verdicts)
    print(
        f"{len(verdicts)} schedules in {time.monotonic() - began:.0f} s: {violated} with violations\n"
        f"{sum(v.seconds for v in verdicts) / 3600:.1f} simulated hours, {sum(v.sends for v in verdicts)} sends"
        f" ({sum(v.late_sends for v in verdicts)} by a process whose clock had stood still),"
        f" {sum(v.calls for v in verdicts)} verbs ({sum(v.failures for v in verdicts)} failed),"
        f" {sum(v.strikes for v in verdicts)} strikes"
    )
    if not violated:
        print(f"at most {3 / len(verdicts):.2g} of all schedules would show one (95 %)")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
