"""The system as a relay runs it: with repositories, a critic and providers.

    app.include(reviews.with_reviews({"shop": "/srv/git/shop.git"}, providers=[reviews.SmtpProvider(...)]))

Producers need none of it: they submit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from redrive import Policy, System
from redrive.errors import InvalidValue
from redrive.systems.reviews.changelist import DIFF_BYTES_MAX
from redrive.systems.reviews.critic import Critic, RuleCritic
from redrive.systems.reviews.metrics import METRICS
from redrive.systems.reviews.providers import Provider
from redrive.systems.reviews.reconcile import EVERY_SECONDS, duty
from redrive.systems.reviews.stages import stage_destinations
from redrive.systems.reviews.taxonomy import POLICY

DIFF_BYTES_LIMIT: Final = 1024 * 1024


def with_reviews(
    repositories: Mapping[str, Path | str],
    *,
    providers: Sequence[Provider],
    critic: Critic | None = None,
    diff_bytes_max: int = DIFF_BYTES_MAX,
    reconcile_every_seconds: float = EVERY_SECONDS,
    policy: Policy = POLICY,
) -> System:
    """repositories: where each is on this machine, by the name that requests give. critic: None = the rules of Redrive.
    diff_bytes_max: a larger diff is refused; 1 to 1,048,576. policy: of the stages fetch and llm.
    """
    from redrive.systems.reviews import system

    if not repositories or not providers:
        raise InvalidValue("Reviews need at least one repository and one provider.")
    if not 1 <= diff_bytes_max <= DIFF_BYTES_LIMIT:
        raise InvalidValue(f"diff_bytes_max is {diff_bytes_max}; it must be between 1 and {DIFF_BYTES_LIMIT}.")
    by_name = {one.name: one for one in providers}
    if len(by_name) < len(providers):
        raise InvalidValue("Two providers of reviews have one name.")
    paths = {name: Path(path) for name, path in repositories.items()}
    stages = stage_destinations(paths, critic or RuleCritic(), by_name, diff_bytes_max=diff_bytes_max, policy=policy)
    return replace(
        system,
        destinations=[*stages, *(one.destination() for one in providers)],
        duties=[duty(providers, every_seconds=reconcile_every_seconds)],
        metrics=METRICS,
    )
