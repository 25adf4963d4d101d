"""Runs every check and test, in the environment `dev`, and says at the end what ran and what did not.

One PostgreSQL 18 serves the whole run and is stopped by its pid, whatever happens. `--full` adds the tests
that need more than that, and the parts of the suite that must also hold on PostgreSQL 15. A run in which
something that should have run did not is a failed run. A test or two that fail are looked at once more, alone: see
`second_look`. The last line is the plain count of tests. Called by `./test`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
WORKERS = "3"  # on two cores: a third of the time of a test is waiting
# A module stays with one worker, which makes its fixtures once; one that has nothing left takes from the longest queue.
SHARING = ["-n", WORKERS, "--dist", "worksteal"]
# The run's server need not survive a power cut. Autovacuum looks into every database once in its naptime: with the
# embedded server's second and a database for each test, a worker of it starts about every tenth of a second.
SERVER = {"fsync": "off", "full_page_writes": "off", "autovacuum_naptime": "10s"}
MEMORY = Path("/dev/shm")  # noqa: S108 - directories in it are made by mkdtemp
MEMORY_FREE_MIN = 8 << 30  # a run needs up to 2 GB
PG15_BIN = Path("/usr/lib/postgresql/15/bin")
# Debian's package to the program that it brings: what --full uses beyond the wheels.
PACKAGES = {
    "postgresql-15": PG15_BIN / "postgres",
    "pgbouncer": Path("/usr/sbin/pgbouncer"),
    "prometheus": Path("/usr/bin/promtool"),
    "libfaketime": Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1"),
    "rabbitmq-server": Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),
    "chromium": Path("/usr/bin/chromium"),
    "libatomic1": Path(f"/usr/lib/{os.uname().machine}-linux-gnu/libatomic.so.1"),  # of playwright's driver
    "fonts-dejavu-core": Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),  # else a page has no letters
}
PROOF_SCALE = "0.05"
PROOF_HISTORIES = "10"  # in about three minutes; 500 with --soak
PROVE = [sys.executable, "-m", "redrive", "prove", "engine", "--seed", "1"]
NO_TESTS = 5  # pytest's exit code when nothing was collected
TESTS_FAILED = 1  # and when all ran and some failed
CRASHED = "crashed while running"  # xdist's words of a worker
LAST_FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
SLOWEST = 50  # tests that `--slowest` lists
SECOND_LOOKS_MAX = 2
SECOND_LOOK_RUNS = 3
# What a seed or an order of steps decides fails again, so it has failed.
JUDGED_AT_ONCE = (
    "tests/interleavings",
    "tests/simulation",
    "tests/model",
    "tests/mutants",
    "tests/unit",
    "tests/plans",
)


@dataclass
class Step:
    """One thing that ran, or did not."""

    name: str
    ok: bool
    note: str = ""
    seconds: float = 0.0


@dataclass
class Report:
    """What the whole run did."""

    steps: list[Step] = field(default_factory=list)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    unstable: list[str] = field(default_factory=list)
    durations: list[tuple[float, str]] = field(default_factory=list)  # seconds of each test, over all servers

    @property
    def ok(self) -> bool:
        return all(step.ok for step in self.steps)


def main(arguments: list[str]) -> int:
    """Run what was asked for; 0 if all of it ran and passed."""
    options, pytest_arguments = parse(arguments)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # so that the server is stopped
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    os.chdir(ROOT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of thousands of processes compiles what it imports
    report = Report()
    try:
        if not options.quick:
            check_code(report)
        run_tests(report, options, pytest_arguments)
    except KeyboardInterrupt:
        report.steps.append(Step("interrupted", ok=False, note="by the keyboard"))
    if options.slowest or options.full:
        print_slowest(report.durations)
    print_summary(report)
    return 0 if report.ok else 1


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options; whatever else there is goes to pytest."""
    parser = argparse.ArgumentParser(
        prog="./test",
        description="Runs lint, types, import contracts and tests. Other arguments go to pytest.",
    )
    parser.add_argument(
        "--full", action="store_true", help="also what needs PostgreSQL 15 and more (installs it, as root)"
    )
    parser.add_argument("--soak", action="store_true", help="also the tests that run for minutes")
    parser.add_argument("--quick", action="store_true", help="the tests only, without lint, types and contracts")
    parser.add_argument(
        "--slowest",
        action="store_true",
        help=f"list the {SLOWEST} slowest tests and the time by directory, as --full does",
    )
    return parser.parse_known_args(arguments)


def check_code(report: Report) -> None:
    """What can be said of the code without running it."""
    with beside([sys.executable, "-m", "mypy", "--no-error-summary"]) as types:
        for name, command in (
            ("lint", ["ruff", "check", "--quiet", "."]),
            ("format", ["ruff", "format", "--check", "--quiet", "."]),
            ("contracts", [sys.executable, str(ROOT / "bootstrap/contracts.py")]),
        ):
            timed(report, name, partial(run_program, command))
        timed(report, "types", types)


def run_program(command: list[str]) -> Step:
    """Run a program to its end; the step's name is set by `timed`."""
    code = subprocess.run(command, check=False).returncode
    return Step("", ok=code == 0, note="" if code == 0 else f"exit code {code}")


def timed(report: Report, name: str, action: Callable[[], Step]) -> Step:
    """Carry out a step, say so, and note how long it took."""
    print(f"── {name} ──", flush=True)
    begin = time.monotonic()
    step = action()
    step.name, step.seconds = name, time.monotonic() - begin
    report.steps.append(step)
    return step


def run_tests(report: Report, options: argparse.Namespace, arguments: list[str]) -> None:
    """The whole suite on PostgreSQL 18 and, with --full, the marked part of it on 15."""
    asked = [flag for flag in ("--full", "--soak") if getattr(options, flag[2:])]
    missing = ensure_packages() if options.full else None
    # As root, with all that --full installs, nothing has a reason not to run.
    run = partial(pytest_on, report, all_run=options.full and os.geteuid() == 0 and not missing)
    if not options.full:
        timed(report, "tests on 18", lambda: run(None, [*asked, *arguments]))
        report.steps.append(Step("tests on 15", ok=True, note="not asked for (./test --full)"))
        return
    with beside([*PROVE, "--scale", PROOF_SCALE, "--histories", PROOF_HISTORIES]) as proof:
        timed(report, "tests on 18", lambda: run(None, [*asked, *arguments]))
        timed(report, "proof", proof)
    if missing:
        # As root it could have been installed, so this is a failure; otherwise the summary says it loudly.
        report.steps.append(Step("packages", ok=os.geteuid() != 0, note=f"SKIPPED: {missing}"))
    if PACKAGES["postgresql-15"].exists():
        # Running the marked part alone: whatever else was selected was judged on 18.
        timed(report, "tests on 15", lambda: run(PG15_BIN, [*asked, "-m", "pg15", *arguments]))


@contextmanager
def beside(command: list[str]) -> Iterator[Callable[[], Step]]:
    """Run a program beside what follows; the step waits for its end and prints what it said."""
    with ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        # In a session of its own, so that Ctrl-C reaches it once, through us, and its own end is not interrupted.
        process = stack.enter_context(
            subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        )

        def end() -> Step:
            code = process.wait()
            said.seek(0)
            print(said.read().decode("utf-8", "replace"), end="", flush=True)
            return Step("", ok=code == 0, note="" if code == 0 else f"exit code {code}")

        try:
            yield end
        finally:
            if process.poll() is None:
                process.terminate()  # which takes its own processes away


def missing_packages() -> list[str]:
    """Debian's names of what is not there. A Python without `ensurepip` cannot make the environment of the tutorial."""
    importlib.invalidate_caches()
    missing = [name for name, program in PACKAGES.items() if not program.exists()]
    return missing if importlib.util.find_spec("ensurepip") else [*missing, "python3-venv"]


def ensure_packages() -> str | None:
    """Install what is missing of Debian's, if we may; the reason why something is not there, if so."""
    wanted = missing_packages()
    if not wanted:
        return None
    named = " and ".join(wanted)
    if os.geteuid() != 0:
        return f"{named} not installed, and only root can install it"
    if shutil.which("apt-get") is None:
        return f"{named} not installed, and there is no apt-get to install it"
    # No cluster and no service of its own: only the programs are wanted.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    Path("/etc/postgresql-common").mkdir(exist_ok=True)
    conf = Path("/etc/postgresql-common/createcluster.conf")
    if not conf.exists():
        conf.write_text("create_main_cluster = false\n", "ascii")
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", *wanted],
    ):
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
    failed = missing_packages()
    return f"apt-get could not install {' and '.join(failed)}" if failed else None


def pytest_on(report: Report, binaries: Path | None, arguments: list[str], *, all_run: bool) -> Step:
    """Run pytest against a server of its own and add up what it counted. all_run: one that was skipped is a failure."""
    environment = dict(os.environ)
    if binaries is not None:
        environment["REDRIVE_PG_BIN"] = str(binaries)
    with directory_of_run() as place, server(place, environment) as dsn:
        results = place / "results.xml"
        environment |= {"REDRIVE_TEST_DSN": dsn, "REDRIVE_TEST_SCRATCH": str(place)}
        LAST_FAILED.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-rs", *SHARING, f"--junitxml={results}", *arguments]
        code = subprocess.run(command, env=environment, check=False).returncode
        counts = count(results)
        report.durations += durations(results)
        whole = code == TESTS_FAILED and not has_crashed(results)
        unstable = second_look(environment, arguments) if whole else []
    if unstable and len(unstable) == counts["failed"]:
        report.unstable += unstable
        counts = {**counts, "passed": counts["passed"] + len(unstable), "failed": 0}
        code = 0
    report.passed += counts["passed"]
    report.failed += counts["failed"]
    report.skipped += counts["skipped"]
    note = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    if code == NO_TESTS or not counts["passed"] + counts["failed"]:
        return Step("", ok=False, note="no test ran")
    if all_run and counts["skipped"]:
        return Step("", ok=False, note=f"{note}: as root every test must run")
    return Step("", ok=code == 0, note=note)


def has_crashed(results: Path) -> bool:
    """Whether a worker died: then the tests behind it have not run, and the run has failed whatever they say."""
    return not results.exists() or CRASHED in results.read_text("utf-8", "replace")


def second_look(environment: dict[str, str], arguments: list[str]) -> list[str]:
    """The failed tests, if they are one or two and each passes three times in a row with the machine to itself.

    Such a failure is the machine's or the test's impatience, not the product's, and the summary names it as UNSTABLE so
    that somebody mends it. What a seed or an order of steps decides gets no second look, nor do three failures.
    """
    failed = sorted(json.loads(LAST_FAILED.read_text("utf-8"))) if LAST_FAILED.exists() else []
    if not failed or len(failed) > SECOND_LOOKS_MAX or any(name.startswith(JUDGED_AT_ONCE) for name in failed):
        return []
    flags = [argument for argument in arguments if argument in ("--full", "--soak")]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *flags, *failed]
    for turn in range(1, SECOND_LOOK_RUNS + 1):
        print(f"── second look {turn} of {SECOND_LOOK_RUNS}: {' '.join(failed)} ──", flush=True)
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            return []
    return failed


@contextmanager
def directory_of_run() -> Iterator[Path]:
    """Where the servers of the run keep their data: in memory where there is room, for a database costs half there."""
    memory = os.statvfs(MEMORY) if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    roomy = memory and memory.f_bavail * memory.f_frsize >= MEMORY_FREE_MIN and not memory.f_flag & os.ST_NOEXEC
    with tempfile.TemporaryDirectory(
        prefix="redrive-run-", dir=MEMORY if roomy else None, ignore_cleanup_errors=True
    ) as name:
        Path(name).chmod(0o711)  # as root the server may run as another user, who must pass
        yield Path(name)


@contextmanager
def server(directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """The run's server; tests of durability start their own."""
    from redrive.operate import embedded

    before = os.environ.get("REDRIVE_PG_BIN")
    if "REDRIVE_PG_BIN" in environment:
        os.environ["REDRIVE_PG_BIN"] = environment["REDRIVE_PG_BIN"]
    try:
        running = embedded.start(directory / "data", settings=SERVER)
    finally:
        if before is None:
            os.environ.pop("REDRIVE_PG_BIN", None)
        else:
            os.environ["REDRIVE_PG_BIN"] = before
    try:
        print(f"PostgreSQL {running.major}, pid {running.pid}", flush=True)
        yield running.dsn
    finally:
        running.stop()


def count(results: Path) -> dict[str, int]:
    """How many passed, failed and were skipped; an error in a fixture is a failure."""
    if not results.exists():
        return {"passed": 0, "failed": 0, "skipped": 0}
    suite = ET.parse(results).getroot()  # noqa: S314 - written by the pytest that we ran
    total = {
        name: sum(int(part.get(name, 0)) for part in suite.iter("testsuite"))
        for name in ("tests", "failures", "errors", "skipped")
    }
    failed = total["failures"] + total["errors"]
    return {
        "passed": total["tests"] - failed - total["skipped"],
        "failed": failed,
        "skipped": total["skipped"],
    }


def durations(results: Path) -> list[tuple[float, str]]:
    """Seconds of each test with its fixtures, and its name."""
    if not results.exists():
        return []
    cases = ET.parse(results).getroot().iter("testcase")  # noqa: S314 - written by the pytest that we ran
    return [(float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in cases]


def print_slowest(durations: list[tuple[float, str]]) -> None:
    """Where the time of the tests goes: by directory, then the slowest tests. Workers run side by side."""
    directories: dict[str, tuple[float, int]] = {}
    for seconds, name in durations:
        directory = "/".join(name.split("::")[0].split(".")[:2])
        total, tests = directories.get(directory, (0.0, 0))
        directories[directory] = (total + seconds, tests + 1)
    print("\nSeconds by directory, of all workers:")
    for directory, (total, tests) in sorted(directories.items(), key=lambda entry: -entry[1][0]):
        print(f"{total:9.1f} s  {tests:5} tests  {directory}")
    print(f"\nThe {SLOWEST} slowest tests:")
    for seconds, name in sorted(durations, reverse=True)[:SLOWEST]:
        print(f"{seconds:9.1f} s  {name}")


def print_summary(report: Report) -> None:
    """The table of what ran, and the plain count as the last line."""
    print()
    for step in report.steps:
        loud = "SKIPPED" in step.note
        state = "SKIP" if loud and step.ok else "ok" if step.ok else "FAIL"
        print(f"{state:>5}  {step.name:<12} {step.seconds:7.1f} s  {step.note}")
    for name in report.unstable:
        print(f"UNSTABLE  failed once, then passed {SECOND_LOOK_RUNS} of {SECOND_LOOK_RUNS} alone: {name}")
    print()
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
