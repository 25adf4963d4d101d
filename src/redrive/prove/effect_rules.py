"""What must hold between the observer's log and the database. Each rule yields one sentence with ids for a
violation."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from redrive.prove.config import Config
from redrive.prove.evidence import Evidence, Row, attempt_of
from redrive.prove.store_rules import CLOCK_SECONDS, Rule


def requests_are_archived(evidence: Evidence, _: Config) -> Iterator[str]:
    """Every request belongs to a claim in the archive, or to a lease."""
    leases = {(row["id"], row["attempt"]) for row in evidence.leases}
    for line in evidence.lines("request"):
        if not evidence.claim(line) and (line["id"], line["attempt"]) not in leases:
            yield f"A {line['call']} of attempt {line['attempt']} of message {line['id']} was seen without a claim."


def intent_before_effect(evidence: Evidence, _: Config) -> Iterator[str]:
    """The claim was in the database before the first byte went out."""
    for line in evidence.lines("request"):
        claim = evidence.claim(line)
        if claim and line["at"] + CLOCK_SECONDS < claim["claimed_at"]:
            yield f"{attempt_of(line)} was seen before it was claimed."


def no_request_after_the_outcome(evidence: Evidence, _: Config) -> Iterator[str]:
    """An attempt that was settled sends nothing more: only its own relay settles it."""
    for line in evidence.lines("request"):
        claim = evidence.claim(line)
        if claim and claim["verb"] != "reap" and line["at"] > claim["completed_at"] + CLOCK_SECONDS:
            yield f"{attempt_of(line)} sent a {line['call']} after it had been settled."


def one_token(evidence: Evidence, _: Config) -> Iterator[str]:
    """A message has one token and the same bytes every time, and no two messages share a token."""
    bytes_of = {row["id"]: row["sha256"] for row in evidence.messages}
    tokens: dict[str, set[str]] = defaultdict(set)
    owners: dict[str, set[str]] = defaultdict(set)
    for line in evidence.lines("request"):
        tokens[line["id"]].add(line["token"])
        owners[line["token"]].add(line["id"])
        if line["id"] not in bytes_of:
            yield f"A {line['call']} of {line['id']} was seen, and there is no such message."
        elif line["sha256"] != bytes_of[line["id"]]:
            yield f"{attempt_of(line)} sent other bytes than were enqueued."
    for message, found in tokens.items():
        if len(found) > 1:
            yield f"Message {message} was sent with {len(found)} tokens: {', '.join(sorted(found))}."
    for token, ids in owners.items():
        if len(ids) > 1:
            yield f"Token {token} was used for {len(ids)} messages: {', '.join(sorted(ids))}."


def lookup_before_resend(evidence: Evidence, config: Config) -> Iterator[str]:
    """After an attempt in doubt nothing is sent before a lookup, of that same attempt, has said absent."""
    absent: set[tuple[str, int]] = set()
    for line in evidence.observed:
        if line["log"] == "answer" and line["call"] == "lookup" and line["answer"] == "absent":
            absent.add((line["id"], line["attempt"]))
        if line["log"] != "request" or line["call"] != "send" or line["destination"] not in config.lookups:
            continue
        before = evidence.claims(line["id"]).get(line["attempt"] - 1)
        if before and before["in_doubt"] and (line["id"], line["attempt"]) not in absent:
            yield (
                f"{attempt_of(line)} was sent to {line['destination']} after an attempt"
                " in doubt, without a lookup that said absent."
            )


def hold_never_resends(evidence: Evidence, config: Config) -> Iterator[str]:
    """To a destination that holds in doubt nothing is sent after an attempt in doubt."""
    for line in evidence.sends():
        if line["destination"] in config.holds:
            doubts = [n for n, row in evidence.claims(line["id"]).items() if n < line["attempt"] and row["in_doubt"]]
            if doubts:
                yield (
                    f"{attempt_of(line)} was sent to {line['destination']}, although attempt {doubts[0]} was in doubt."
                )


def one_effect_where_one_can_ask(evidence: Evidence, config: Config) -> Iterator[str]:
    """At most one effect per message at destinations that are asked, and no second send that is not a late one."""
    counts = Counter((line["id"], line["destination"]) for line in evidence.lines("effect"))
    for (message, destination), count in counts.items():
        if count > 1 and destination in config.lookups:
            yield f"Message {message} had {count} effects at {destination}."
    for line in evidence.lines("repeat"):
        if line["destination"] in config.lookups and not is_late(evidence, line):
            yield f"{attempt_of(line)} was sent although the effect had happened."


def is_late(evidence: Evidence, line: Row) -> bool:
    """From a process that was frozen between its last look at the lease and the first byte: only a token can stop
    that."""
    claim = evidence.claim(line)
    return claim is not None and claim["verb"] == "reap" and line["at"] + CLOCK_SECONDS >= claim["completed_at"]


def delivered_means_an_effect(evidence: Evidence, _: Config) -> Iterator[str]:
    """What was closed as delivered was seen by the observer, under the archived reference."""
    effects: dict[str, set[str]] = defaultdict(set)
    for line in evidence.lines("effect"):
        effects[line["id"]].add(line["reference"])
    for row in evidence.attempts:
        if row["closed"] == "delivered" and row["reference"] not in effects.get(row["id"], set()):
            yield f"Message {row['id']} is closed as delivered ({row['reference']}), and no such effect was seen."


def an_effect_is_delivered_or_in_doubt(evidence: Evidence, _: Config) -> Iterator[str]:
    """An effect is delivered or in doubt, and never taken for not having happened."""
    delivered = {row["id"] for row in evidence.attempts if row["closed"] == "delivered"}
    unrecorded = {row["id"] for row in evidence.parked if row["reason"] == "unrecorded"}
    accounted_for = delivered | unrecorded | {row["id"] for row in evidence.leases}
    for line in evidence.lines("effect"):
        claim = evidence.claim(line)
        if line["id"] not in accounted_for and claim is not None and not claim["in_doubt"]:
            yield (
                f"{attempt_of(line)} had an effect, and is archived as {claim['answer']} {claim['code']} without doubt."
            )


def retry_after_is_honoured(evidence: Evidence, _: Config) -> Iterator[str]:
    """The next claim comes no sooner than the destination asked for."""
    for line in evidence.lines("answer"):
        claims = evidence.claims(line["id"])
        this, after = claims.get(line["attempt"]), claims.get(line["attempt"] + 1)
        if line["answer"] != "busy" or this is None or after is None or this["code"] != "BUSY":
            continue
        waited = after["claimed_at"] - this["completed_at"]
        if waited < line["retry_after"]:
            yield f"Message {line['id']} was claimed {waited:.3f} s after it was told to wait {line['retry_after']} s."


RULES: Final[dict[str, Rule]] = {
    "every request archived": requests_are_archived,
    "intent before effect": intent_before_effect,
    "no request after the outcome": no_request_after_the_outcome,
    "one token, the same bytes": one_token,
    "lookup before a resend": lookup_before_resend,
    "hold never resends": hold_never_resends,
    "one effect where one can ask": one_effect_where_one_can_ask,
    "delivered means an effect": delivered_means_an_effect,
    "an effect is delivered or in doubt": an_effect_is_delivered_or_in_doubt,
    "Retry-After honoured": retry_after_is_honoured,
}
