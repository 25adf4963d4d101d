"""Relays killed between the acceptance of a mail and its settlement: what a mail server cannot be asked."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from email import message_from_string

import psycopg
import pytest

import redrive
from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.failpoints import Failpoint
from tests.support.scratch import scratch
from tests.transports.smtp.mail_app import PORT_VARIABLE

KILLS = 10
SECONDS_MAX = 60.0
LIMITS = {"lease_seconds": 1.0, "reap_every_seconds": 0.2, "concurrency": 1, "claim_max": 1}
ACCEPTED = Failpoint(event="send.stop")

pytestmark = [pytest.mark.req("G-13"), pytest.mark.timeout(600)]


class Post:
    """Relays, and a mail server in a process that no kill reaches."""

    def __init__(self, environment: ProofEnvironment) -> None:
        self.environment = environment
        self._log = environment.directory / "mails"
        port = environment.directory / "port"
        environment.processes.start("mail", "redrive.kit.proof.smtp_server", str(port), str(self._log))
        assert environment.wait(lambda: port.exists() and port.read_text(), seconds=SECONDS_MAX)
        self._variables = {PORT_VARIABLE: port.read_text()}

    def enqueue(self, destination: str, count: int) -> None:
        with psycopg.connect(self.environment.dsn) as conn:
            for number in range(count):
                payload = {"to": f"{number}@example.com", "subject": "Welcome", "text": "Hello"}
                redrive.enqueue(conn, destination, payload)

    def relay(self, destination: str, failpoint: Failpoint | None = None) -> None:
        """With a failpoint: until it was killed there."""
        app = "tests.transports.smtp.mail_app:app"
        relay = self.environment.relay(
            app=app, only=[destination], failpoint=failpoint, limits=LIMITS, environment=self._variables
        )
        if failpoint is not None:
            killed = self.environment.wait(lambda: relay.code == -signal.SIGKILL, seconds=SECONDS_MAX)
            assert killed, relay.said.read_text("utf-8")

    def bodies(self) -> list[str]:
        return [json.loads(line)["body"] for line in self._log.read_text("utf-8").splitlines()]


@pytest.fixture
def post(database: str) -> Iterator[Post]:
    with scratch("redrive-post-") as place, ProofEnvironment(place, database) as environment:
        yield Post(environment)


def test_ten_kills_after_the_acceptance_cause_at_most_one_mail_each_where_doubt_is_held(post: Post) -> None:
    post.enqueue("hold", KILLS)
    for _ in range(KILLS):
        post.relay("hold", ACCEPTED)
    post.relay("hold")
    held = "SELECT count(*) FROM redrive.parked WHERE reason = 'held'"
    assert post.environment.wait(lambda: post.environment.value(held) == KILLS, seconds=SECONDS_MAX)
    mails = Counter(message_from_string(body)["Message-ID"] for body in post.bodies())
    assert len(mails) == KILLS
    assert set(mails.values()) == {1}


def test_a_kill_after_the_acceptance_sends_the_same_bytes_twice_where_doubt_is_resent(post: Post) -> None:
    post.enqueue("resend", 1)
    post.relay("resend", ACCEPTED)
    post.relay("resend")
    assert post.environment.wait(lambda: post.environment.counts()["closed"] == 1, seconds=SECONDS_MAX)
    first, second = post.bodies()
    assert first == second
