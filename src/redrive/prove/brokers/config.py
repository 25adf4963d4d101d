"""The names that the processes of this proof share, and how each of them learns which broker it talks to."""

import os
from typing import Any, Final

from redrive.policy import Backoff, Breaker, Policy

DESTINATION: Final = "orders"  # of the publisher
PLACE: Final = "orders"  # stream, queue or topic
CONSUMER: Final = "billing"
SOURCE: Final = "/proof"  # of the CloudEvents

BROKER_VARIABLE: Final = "REDRIVE_PROVE_BROKER"
PORT_VARIABLE: Final = "REDRIVE_PROVE_PORT"
ROLE_VARIABLE: Final = "REDRIVE_PROVE_ROLE"
WORKER: Final = "worker"

# Faults come faster than in life: a message may meet many of them, and waits shorter between two attempts.
_QUICK: Final = Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.5, jitter="full")
RULES: Final[dict[str, Any]] = {
    "policy": Policy(attempts=1000, backoff=_QUICK, crashes=100),
    "breaker": Breaker(failures=20, cool_off_seconds=0.1, cool_off_max_seconds=0.5),
}

# One of so many events is refused by the worker's handler: it is deferred, and the consumer's relay processes it.
REFUSED_EVERY: Final = 97

EFFECT_TABLE: Final = """
CREATE SCHEMA redrive_prove;
CREATE TABLE redrive_prove.effect (number bigserial PRIMARY KEY, name text NOT NULL, order_by text);
"""


def broker() -> str:
    return os.environ[BROKER_VARIABLE]


def port() -> int:
    """Of the proxy in front of it."""
    return int(os.environ[PORT_VARIABLE])
