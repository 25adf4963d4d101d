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


def asked_before_sent_again(lines: Iterable[Line], refused: Collection[str]) -> Iterator[str]:
    """Between two requests of a token that the provider did not refuse there is a question.

    refused: tokens of which a request was refused with an error: the next request needs no question.
    """
    open_since: set[str] = set()
    broken = []
    for line in lines:
        match line["log"]:
            case "request":
                if line["token"] in open_since and line["token"] not in refused:
                    broken.append(line["token"])
                open_since.add(line["token"])
            case "asked":
                open_since.discard(line["token"])
    yield from _listed("were sent again without a question", broken)


def mailed_at_most_once(wanted: Collection[str], mails: Mapping[str, int], held: Collection[str]) -> Iterator[str]:
    """At a mail server, which cannot be asked: at most one mail each; who has none is held for a person."""
    yield from _listed("were mailed more than once", [one for one, count in mails.items() if count > 1])
    yield from _listed("were mailed without being asked for", [one for one in mails if one not in wanted])
    lost = [one for one in wanted if not mails.get(one) and one not in held]
    yield from _listed("were neither mailed nor held", lost)


def _listed(what: str, found: Collection[str]) -> Iterator[str]:
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield f"{len(found)} {what}: {', '.join(sorted(found)[:SHOWN])}{more}."
