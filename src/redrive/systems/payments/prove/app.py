"""The app that the relays of the proof run, with the rails of the environment."""

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from redrive import App, Backoff, Breaker, Policy
from redrive.systems.payments.prove.config import Config
from redrive.systems.payments.rails import DOWN_CODES, SIMULATED, Rail, with_rails

VARIABLE: Final = "REDRIVE_PROVE_RAILS"
SPEC: Final = "redrive.systems.payments.prove.app:app"
_QUICK: Final = Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.5, jitter="full")

_BREAKER: Final = Breaker(codes=DOWN_CODES, cool_off_seconds=0.5, cool_off_max_seconds=2.0)


def environment(config: Config, urls: Mapping[str, str]) -> dict[str, str]:
    """urls: of each rail type."""
    return {VARIABLE: json.dumps({"config": config.printed(), "urls": dict(urls)})}


def rails(config: Config, urls: Mapping[str, str]) -> list[Rail]:
    options: dict[str, Any] = {
        **{name: getattr(config, name) for name in ("token_ttl_seconds", "lookup_after_seconds", "timeout_seconds")},
        "can_look_up": True,
        "has_statement": True,
        "breaker": _BREAKER if config.breaker else None,
        "policy": Policy(
            **{name: getattr(config, name) for name in ("attempts", "lookups", "crashes")},
            backoff=_QUICK,
            lookup_backoff=_QUICK,
        ),
        "egress": SIMULATED,
    }
    return [Rail(rail_type=rail_type, url=url, **options) for rail_type, url in urls.items()]


def _app(declared: Mapping[str, Any]) -> App:
    config = Config(**{**declared["config"], "late_seconds": tuple(declared["config"]["late_seconds"])})
    made = App()
    made.include(
        with_rails(
            rails(config, declared["urls"]),
            reconcile_every_seconds=config.reconcile_every_seconds,
            lag_seconds=config.lag_seconds,
        )
    )
    return made


app = _app(json.loads(os.environ[VARIABLE])) if VARIABLE in os.environ else App()
