"""Reviews: changelists are reviewed in stages with budgets of their own, and each recipient is notified once per
version.

    reviews.submit(conn, reviews.ReviewRequest(...))                              # in your transaction
    app.include(reviews.with_reviews({"shop": "shop.git"}, providers=[...]))      # what a relay runs; or [reviews]
    in a file

Importing this needs no library of its extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive import System
from redrive.kit import loader, modules_of
from redrive.systems.reviews.cli import command
from redrive.systems.reviews.views import VIEWS

if TYPE_CHECKING:
    # isort: off
    # fmt: off
    from redrive.systems.reviews.chat import ChatCritic as ChatCritic
    from redrive.systems.reviews.configured import with_reviews as with_reviews
    from redrive.systems.reviews.critic import Critic as Critic, RuleCritic as RuleCritic
    from redrive.systems.reviews.findings import Finding as Finding
    from redrive.systems.reviews.providers import HttpProvider as HttpProvider, SmtpProvider as SmtpProvider
    from redrive.systems.reviews.request import (
        Recipient as Recipient, ReviewRefused as ReviewRefused, ReviewRequest as ReviewRequest,
    )
    from redrive.systems.reviews.submission import (
        Submitted as Submitted, arerun as arerun, asubmit as asubmit, rerun as rerun, submit as submit,
    )
    # fmt: on
    # isort: on

_MODULE_OF = modules_of(
    {
        "redrive.systems.reviews.chat": "ChatCritic",
        "redrive.systems.reviews.configured": "with_reviews",
        "redrive.systems.reviews.critic": "Critic RuleCritic",
        "redrive.systems.reviews.findings": "Finding",
        "redrive.systems.reviews.providers": "HttpProvider SmtpProvider",
        "redrive.systems.reviews.request": "Recipient ReviewRefused ReviewRequest",
        "redrive.systems.reviews.submission": "Submitted arerun asubmit rerun submit",
    }
)
__all__ = sorted([*_MODULE_OF, "system"])  # noqa: PLE0605 - the names are listed once
if not TYPE_CHECKING:
    __getattr__ = loader(__name__, _MODULE_OF)


def _from_settings(table: Mapping[str, Any], file: Path) -> System:
    from redrive.systems.reviews.toml_reviews import from_settings

    return from_settings(table, file)


def _prove(**values: Any) -> Any:
    """Review a thousand changelists while relays are killed between a provider's acceptance and the write that follows.

    The provider's own log decides: exactly one notification for each recipient and version where it can be asked,
    always the same bytes; over SMTP, which cannot be asked, at most one, and what is in doubt is held. A killed relay
    repeats no stage that was settled. Exit code 1 means that one of these is not so.
    """
    from redrive.systems.reviews.prove.prove import prove

    return prove(**values)


def _demo(**values: Any) -> int:
    """A repository, a review of its last change, and the mail that comes of it."""
    from redrive.kit.demo import Demo
    from redrive.systems.reviews.demo.play import run

    console = values.pop("console")
    return run(Demo(**values), console)


def _router() -> Any:
    from redrive.systems.reviews.router import router

    return router


system = System(
    name="reviews",
    migrations=files(__name__) / "sql",
    cli=command,
    router=_router,
    views=VIEWS,
    demo=_demo,
    prove=_prove,
    from_settings=_from_settings,
)
