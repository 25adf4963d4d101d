"""What the providers' own logs must say of the notifications. Pure: no database, no process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from redrive.kit.proof.journal import Line

SHOWN = 10


def sent_once(wanted: Collection[str], lines: Iterable[Line]) -> Iterator[str]:
    """At a provider that can be asked: exactly one for each token, and none that no recipient asked for."""
    sent = Counter(line["token"] for line in lines if line["log"] == "sent")
    yield from _listed("were never notified", [token for token in wanted if not sent[token]])
    yield from _listed("were notified more than once", [token for token, count in sent.items() if count > 1])
    yield from _listed("were notified without being asked for", [token for token in sent if token not in wanted])


def same_bytes(lines: Iterable[Line]) -> Iterator[str]:
    """Every request of a token has the same bytes."""
    digests: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line["log"] == "request":
            digests[line["token"]].add(line["sha256"])
    yield from _listed("were requested with different bytes", [one for one, found in digests.items() if len(found) > 1])


def asked_before_sent_again(lines: Iterable[Line]) -> Iterator[str]:
    """After a request that was not refused its token is asked about before it is requested again."""
    in_doubt: set[str] = set()
    broken = []
    for line in lines:
        match line["log"]:
            case "request":
                if line["token"] in in_doubt:
                    broken.append(line["token"])
                in_doubt.add(line["token"])
            case "asked" | "refused":
                in_doubt.discard(line["token"])
    yield from _listed("were sent again without a question", broken)


def mailed_at_most_once(
    wanted: Collection[str], mails: Mapping[str, int], held: Collection[str], *, held_max: int
) -> Iterator[str]:
    """At a mail server, which cannot be asked: at most one mail each; who has none is held for a person.

    held_max: how many can have been in doubt. More would mean that mails are held which nothing has happened to.
    """
    yield from _listed("were mailed more than once", [one for one, count in mails.items() if count > 1])
    yield from _listed("were mailed without being asked for", [one for one in mails if one not in wanted])
    lost = [one for one in wanted if not mails.get(one) and one not in held]
    yield from _listed("were neither mailed nor held", lost)
    if len(held) > held_max:
        yield f"{len(held)} are held, and at most {held_max} were in doubt."


def _listed(what: str, found: Collection[str]) -> Iterator[str]:
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield f"{len(found)} {what}: {', '.join(sorted(found)[:SHOWN])}{more}."
