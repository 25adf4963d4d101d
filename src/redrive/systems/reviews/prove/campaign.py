"""One run: reviews are submitted, and relays end by `kill -9` at the points between a provider's answer and our write.

Each point is a failpoint of a relay that only notifies: before the settle transaction, in it before our rows, and
before its commit. So a kill follows the answer of a provider to one notification, an acceptance but for the few that
it refuses or loses (SHARE), and whatever else is in hand then is cut off anywhere. The stages before are run by another
relay. At the end everything must come to rest, the providers' logs are judged, and they are compared with our rows
once more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from redrive.kit.database import open_database
from redrive.kit.proof import failpoints, journal
from redrive.kit.proof.environment import RELAY_LIMITS, ProofEnvironment
from redrive.kit.proof.failpoints import Failpoint
from redrive.kit.proof.fork_server import Child, ForkServer
from redrive.kit.proof.loop_thread import loop_thread
from redrive.kit.proof.processes import patience
from redrive.kit.proof.report import Progress
from redrive.systems import reviews
from redrive.systems.reviews.demo.repository import make_repository
from redrive.systems.reviews.names import FETCH, LLM, PIPELINE, destination_of
from redrive.systems.reviews.prove import app, processes, rules
from redrive.systems.reviews.providers import Provider
from redrive.systems.reviews.reconcile import Compared, reconcile
from redrive.systems.reviews.request import Recipient, ReviewRequest

POINTS: Final = ("settle_one.start", "record.start", "commit.start")
KILLS: Final = 50  # at each point, at scale 1
REVIEWS_PER_KILL: Final = 4
STAGES: Final = (f"{PIPELINE}.{FETCH}", f"{PIPELINE}.{LLM}")
NOTIFY: Final = (destination_of(app.HOOKS), destination_of(app.MAIL))
RECIPIENTS: Final = 3
SECONDS_MAX: Final = 120.0
SECONDS_PER_KILL: Final = 6.0
SHARE: Final = {"accepted_lost": 0.05, "accepted_502": 0.03, "unavailable": 0.05, "throttled": 0.02}
# A reply that is lost is not among them: then every mail that is held is so because of a kill.
MAIL_SHARE: Final = {"RCPT": ("451 4.3.0 try again later", 0.1)}
# On a busy machine too, no relay loses its lease, and no `record` its time, but by a kill.
LIMITS: Final = {**RELAY_LIMITS, "lease_seconds": 8.0, "reap_every_seconds": 0.25, "record_timeout_seconds": 4.0}
_PROVIDER: Final = "redrive.systems.reviews.simulators.provider"
_MAIL_SERVER: Final = "redrive.systems.reviews.simulators.mail_server"
_OPEN = "SELECT (SELECT count(*) FROM redrive.pending) + (SELECT count(*) FROM redrive.lease)"
_NOTIFICATIONS = """
SELECT redrive.token_for(d.message_id, 1, 'first')::text, d.state, d.provider
  FROM redrive_reviews.deliveries d
"""
_UNMARKED = """
SELECT redrive.token_for(d.message_id, 1, 'first')::text
  FROM redrive_reviews.delivery d WHERE d.notified_at IS NULL AND d.message_id IS NOT NULL
"""
_STOPPED = """
SELECT k.destination, k.reason, k.error_class, count(*) FROM redrive.parked k
 WHERE NOT starts_with(k.destination, 'reviews.notify.') GROUP BY 1, 2, 3
"""
_REPEATED = """
SELECT count(*) FROM (SELECT a.message_id, a.destination FROM redrive.attempt a JOIN redrive_reviews.job j USING
(message_id)
 WHERE a.settlement = 'advance' OR a.closed = 'delivered' GROUP BY 1, 2 HAVING count(*) > 1) repeated
"""


@dataclass
class Campaign:
    environment: ProofEnvironment
    seed: int
    kills: int
    progress: Progress
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    _unwritten: set[str] = field(default_factory=set)

    def run(self) -> None:
        self._repository = make_repository(self.environment.directory / "repository")
        self._hooks, url = self._serve("hooks", _PROVIDER, script={"share": SHARE, "seed": self.seed})
        self._mail, port = self._serve("mail", _MAIL_SERVER, share=MAIL_SHARE, seed=self.seed)
        self._declared: dict[str, Any] = {"repository": str(self._repository.path), "url": url, "port": int(port)}
        self._forks = ForkServer(processes.MODULE, self.environment.directory / "relays.out")
        with loop_thread(self._forks) as self._loop:
            self._run()

    def _run(self) -> None:
        self._submit(REVIEWS_PER_KILL)
        stages = self._relay(only=STAGES)
        self._kill()
        last = self._relay(only=NOTIFY)
        if not self._wait(self._is_over):
            self.violations.append(f"It did not come to rest: {self.environment.counts()}.")
        for relay in (stages, last):
            relay.end()
        self._judge()
        self._compare()

    def _serve(self, name: str, module: str, **settings: Any) -> tuple[Path, str]:
        log = self.environment.directory / f"{name}.log"
        return log, self.environment.server(name, module, log=str(log), **settings)

    def _submit(self, count: int) -> None:
        with psycopg.connect(self.environment.dsn) as conn:
            for number in range(self.counts["reviews"], self.counts["reviews"] + count):
                reviews.submit(conn, _request(number, self._repository.base, self._repository.head))
        self.counts["reviews"] += count
        self.counts["recipients"] += count * RECIPIENTS

    def _kill(self) -> None:
        """A relay at a time that sends notifications and has a failpoint, with new reviews for each."""
        for point in [point for _ in range(self.kills) for point in POINTS]:
            self._submit(REVIEWS_PER_KILL)
            doomed = self._relay(
                only=NOTIFY, failpoint=Failpoint(event=point, nth=1 + sum(self._killed()) % REVIEWS_PER_KILL)
            )
            if not self._wait(lambda doomed=doomed: doomed.code is not None):
                self.violations.append(f"A relay did not come to {point}.")
            self.counts[f"relays killed at {point}"] += doomed.code == -9
            doomed.end()
            self._note_unwritten(point)
            self.progress("relays killed", sum(self._killed()), self.kills * len(POINTS))

    def _note_unwritten(self, point: str) -> None:
        """What this kill has left accepted by a provider and not marked as sent."""
        unmarked = {token for (token,) in self.environment.rows(_UNMARKED)}
        sent = {line["token"] for line in journal.read(self._hooks) if line["log"] == "sent"}
        sent |= {_message_id(line["body"]) for line in journal.read(self._mail)}
        left = (unmarked & sent) - self._unwritten
        self.counts[f"accepted and not written at {point}"] += len(left)
        self._unwritten |= left

    def _killed(self) -> Sequence[int]:
        return [count for name, count in self.counts.items() if name.startswith("relays killed")]

    def _relay(self, *, only: Sequence[str], failpoint: Failpoint | None = None) -> Child:
        variables = {"REDRIVE_DSN": self.environment.dsn, **app.environment(**self._declared)}
        if failpoint is not None:
            variables[failpoints.VARIABLE] = str(failpoint)
            variables[failpoints.MARK_VARIABLE] = str(self.environment.mark())
        limits = {**LIMITS, "claim_max": app.HOOKS_AT_ONCE} if only == NOTIFY else LIMITS
        settings = {"name": "reviews-relay", "only": list(only), "limits": limits, "environment": variables}
        return Child(self._loop.run(self._forks.start("relay", **settings)), self._forks, self._loop)

    def _wait(self, condition: Any) -> bool:
        return self.environment.wait(
            condition, seconds=(SECONDS_MAX + SECONDS_PER_KILL * self.kills) * patience(), every_seconds=0.1
        )

    def _is_over(self) -> bool:
        return bool(self.environment.value(_OPEN) == 0)

    # what the logs say

    def _judge(self) -> None:
        for stage, reason, error_class, count in self.environment.rows(_STOPPED):
            self.violations.append(f"{count} reviews are {reason} in {stage} with {error_class}.")
        rows = [row for row in self.environment.rows(_NOTIFICATIONS) if row[0] is not None]
        self._judge_hooks(list(journal.read(self._hooks)), [row for row in rows if row[2] == app.HOOKS])
        self._judge_mail(list(journal.read(self._mail)), [row for row in rows if row[2] == app.MAIL])
        if repeated := self.environment.value(_REPEATED):
            self.violations.append(f"{repeated} stages were settled more than once.")
        counts = self.environment.counts()
        if counts["enqueued"] != counts["closed"] + counts["parked"]:
            self.violations.append(f"It is not conserved: {counts}.")

    def _judge_hooks(self, lines: list[journal.Line], rows: list[Any]) -> None:
        tokens = [row[0] for row in rows]
        self.counts["notified by the provider"] = sum(line["log"] == "sent" for line in lines)
        self.counts["requests of the provider"] = sum(line["log"] == "request" for line in lines)
        self.counts["questions to the provider"] = sum(line["log"] == "asked" for line in lines)
        self.violations += [*rules.sent_once(tokens, lines), *rules.same_bytes(lines)]
        self.violations += rules.asked_before_sent_again(lines)
        unsent = [row[0] for row in rows if row[1] != "sent"]
        if unsent:
            self.violations.append(f"{len(unsent)} rows are not marked as sent although the provider can be asked.")

    def _judge_mail(self, lines: list[journal.Line], rows: list[Any]) -> None:
        mails = Counter(_message_id(line["body"]) for line in lines)
        held = {row[0] for row in rows if row[1] == "held"}
        self.counts["mailed"] = sum(mails.values())
        self.counts["held for a person"] = len(held)
        self.counts["held although mailed"] = sum(mails[token] > 0 for token in held)
        delivered = [row[0] for row in rows if row[1] == "sent"]
        self.counts["mailed and marked as sent"] = len(delivered)
        held_max = app.MAILS_AT_ONCE * sum(self._killed())
        self.violations += rules.mailed_at_most_once({row[0] for row in rows}, mails, held, held_max=held_max)
        if not all(mails[token] == 1 for token in delivered):
            self.violations.append("A mail is marked as sent that the server does not have.")

    def _compare(self) -> None:
        """Reconciliation, by the providers' own answers, finds nothing to mend."""
        for compared in asyncio.run(_compared(self.environment.dsn, app.providers(self._declared))):
            self.counts["verified by comparison"] += compared.verified
            if compared.learned or compared.requeued or compared.held or compared.asked_in_vain:
                self.violations.append(f"The comparison has found something: {compared}.")


async def _compared(dsn: str, providers: Sequence[Provider]) -> list[Compared]:
    async with open_database(dsn) as store:
        return [await reconcile(store, one) for one in providers]


def _request(number: int, base: str, head: str) -> ReviewRequest:
    hooks = [Recipient(f"person-{one}@example.org", app.HOOKS) for one in range(RECIPIENTS - 1)]
    return ReviewRequest(
        changelist_id=f"change-{number}",
        idempotency_key=f"change-{number}",
        repository=app.REPOSITORY,
        base_commit=base,
        head_commit=head,
        recipients=[*hooks, Recipient("list@example.org", app.MAIL)],
    )


def _message_id(data: str) -> str:
    """The token, which the Message-ID is made of."""
    found = ""
    for line in data.splitlines():
        if line.lower().startswith("message-id:"):
            found = line.partition("<")[2].partition("@")[0]
    return found
