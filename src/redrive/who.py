"""Who does something, and why: the one rule for everything that the audit keeps."""

from dataclasses import dataclass
from typing import Final

from redrive.errors import InvalidValue

ACTOR_MAX: Final = 100  # characters
REASON_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """The actor and the reason of an action, without spaces around them."""

    actor: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "actor", one_line_text("actor", self.actor, most=ACTOR_MAX))
        object.__setattr__(self, "reason", one_line_text("reason", self.reason, most=REASON_MAX))


def one_line_text(name: str, text: str, *, most: int) -> str:
    """The text without spaces around it; InvalidValue unless it has 1 to `most` printable characters."""
    words = text.strip()
    if not 1 <= len(words) <= most or not words.isprintable():
        raise InvalidValue(f"{name} has {len(words)} characters; it must have 1 to {most}, all of them printable.")
    return words


def require_actor_and_reason(actor: str, reason: str) -> None:
    """What the store asks of every caller: neither is blank."""
    if not actor.strip() or not reason.strip():
        raise InvalidValue(f"An act needs an actor and a reason; actor is {actor!r}, reason is {reason!r}.")
