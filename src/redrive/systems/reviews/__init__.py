"""Reviews: changelists are reviewed in stages with budgets of their own, and each recipient is notified once per
version.

    reviews.submit(conn, reviews.ReviewRequest(...))                              # in your transaction
    app.include(reviews.with_reviews({"shop": "shop.git"}, providers=[...]))      # what a relay runs; or [reviews]
    in a file

Importing this needs no library of its extra.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from redrive import System
from redrive.kit import export
from redrive.kit.parts import later, router_of
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

__all__ = export(  # noqa: PLE0605 - the names are listed once
    __name__,
    {
        "chat": "ChatCritic",
        "configured": "with_reviews",
        "critic": "Critic RuleCritic",
        "findings": "Finding",
        "providers": "HttpProvider SmtpProvider",
        "request": "Recipient ReviewRefused ReviewRequest",
        "submission": "Submitted arerun asubmit rerun submit",
    },
    also=["system"],
)

_PROVE: Final = """\
Review a thousand changelists while relays are killed between a provider's acceptance and the write that follows.

The provider's own log decides: exactly one notification for each recipient and version where it can be asked, always
the same bytes; over SMTP, which cannot be asked, at most one, and what is in doubt is held. A killed relay repeats no
stage that was settled. Exit code 1 means that one of these is not so.
"""

system = System(
    name="reviews",
    migrations=files(__name__) / "sql",
    cli=command,
    router=router_of(f"{__name__}.router"),
    views=VIEWS,
    demo=later(f"{__name__}.demo.play", "run"),
    prove=later(f"{__name__}.prove.prove", "prove", about=_PROVE),
    from_settings=later(f"{__name__}.toml_reviews", "from_settings"),
)
