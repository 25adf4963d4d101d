"""What must hold between the producers' logs and the database. Each rule yields one sentence with ids for a
violation."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from redrive.prove.config import Config
from redrive.prove.evidence import CLAIM_ENDS, Evidence

Rule = Callable[[Evidence, Config], Iterator[str]]

# A verb reads the clock when it begins, and commits later: two readings may cross by the time in between.
CLOCK_SECONDS: Final = 0.25


def no_loss(evidence: Evidence, _: Config) -> Iterator[str]:
    """What was acknowledged is there, under the id that the producer was given."""
    keys = {row["id"]: row["key"] for row in evidence.messages}
    for line in evidence.produced:
        if line["log"] == "ack" and keys.get(line["id"]) != line["key"]:
            yield f"Message {line['id']} (key {line['key']}) was acknowledged and is not in the database."


def no_ghost(evidence: Evidence, _: Config) -> Iterator[str]:
    """What is there was intended, byte for byte, and not only by transactions that rolled back."""
    wanted: dict[tuple[str, str], set[str]] = defaultdict(set)
    possible: Counter[tuple[str, str]] = Counter()
    for line in evidence.produced:
        if line["log"] == "intent":
            wanted[line["tenant"], line["key"]].add(line["sha256"])
            possible[line["tenant"], line["key"]] += 1
        elif line["log"] == "rolled_back":
            possible[line["tenant"], line["key"]] -= 1
    for row in evidence.messages if evidence.produced else ():
        key = row["tenant"], row["key"]
        if key not in wanted:
            yield f"Message {row['id']} (key {row['key']}) is in the database and no producer intended it."
        elif row["sha256"] not in wanted[key]:
            yield f"Message {row['id']} has other bytes than its producer wrote."
        elif possible[key] == 0:
            yield f"Message {row['id']} (key {row['key']}) is there although every transaction of it rolled back."


def atomic_with_business(evidence: Evidence, _: Config) -> Iterator[str]:
    """A business row and its message are both there or both not."""
    if evidence.business is None:
        return
    business = {(row["tenant"], row["key"]) for row in evidence.business}
    messages = {(row["tenant"], row["key"]): row["id"] for row in evidence.messages}
    for tenant, key in sorted(business - set(messages)):
        yield f"Business row {tenant}/{key} has no message."
    for at in sorted(set(messages) - business):
        yield f"Message {messages[at]} (key {at[1]}) has no business row."


def one_row_per_key(evidence: Evidence, _: Config) -> Iterator[str]:
    """One message per (tenant, key), the same id for everybody who asked, and the registry says so."""
    counts = Counter((row["tenant"], row["key"]) for row in evidence.messages if row["key"] is not None)
    for (tenant, key), count in counts.items():
        if count > 1:
            yield f"Key {tenant}/{key} has {count} messages."
    registry = {(row["tenant"], row["key_hash"]): row["id"] for row in evidence.keys}
    for row in evidence.messages:
        if row["key"] is not None:
            held = registry.get((row["tenant"], hashlib.sha256(row["key"].encode()).hexdigest()))
            if held != row["id"]:
                yield f"Message {row['id']} has key {row['key']}, which the registry gives to {held}."


def conservation(evidence: Evidence, _: Config) -> Iterator[str]:
    """Every message is pending, leased, parked or closed: in exactly one of them."""
    places: dict[str, list[str]] = {row["id"]: [] for row in evidence.messages}
    for name in ("pending", "leases", "parked"):
        for row in getattr(evidence, name):
            places.setdefault(row["id"], []).append(name)
    for row in evidence.attempts:
        if row["closed"] is not None:
            places.setdefault(row["id"], []).append(f"closed ({row['closed']})")
    known = {row["id"] for row in evidence.messages}
    for message, found in places.items():
        if message not in known:
            yield f"{message} is {' and '.join(found)}, and there is no such message."
        elif len(found) != 1:
            yield f"Message {message} is {' and '.join(found) or 'nowhere'}; it must be in exactly one place."


def closed_is_closed(evidence: Evidence, _: Config) -> Iterator[str]:
    """Nothing happens to a message after the row that closed it."""
    for message, rows in evidence.of_message("attempts").items():
        closing = [row for row in rows if row["closed"] is not None]
        if closing and any(row["attempt"] > closing[0]["attempt"] for row in rows):
            yield f"Message {message} was closed at attempt {closing[0]['attempt']} and was attempted again."


def archive_is_complete(evidence: Evidence, _: Config) -> Iterator[str]:
    """Claims are numbered 1 to n without a gap, and each ended in exactly one row or is leased now."""
    leases = {row["id"]: row["attempt"] for row in evidence.leases}
    now = {row["id"]: row["attempt"] for name in ("pending", "parked") for row in getattr(evidence, name)}
    for row in evidence.messages:
        message = row["id"]
        numbers = [a["attempt"] for a in evidence.of_message("attempts").get(message, ()) if a["verb"] in CLAIM_ENDS]
        if message in leases:
            numbers.append(leases[message])
        if sorted(numbers) != list(range(1, len(numbers) + 1)):
            yield f"Message {message} has claims {sorted(numbers)}; they must be 1 to n, each once."
        elif message in now and now[message] != len(numbers):
            yield f"Message {message} counts {now[message]} claims, and its archive {len(numbers)}."


def one_live_attempt(evidence: Evidence, _: Config) -> Iterator[str]:
    """A claim ended before the next one began: an outcome was accepted only from the current attempt."""
    for row in evidence.messages:
        claims = evidence.claims(row["id"])
        for number, claim in claims.items():
            after = claims.get(number + 1)
            if after and after["claimed_at"] + CLOCK_SECONDS < claim["completed_at"]:
                yield f"Attempt {number} of message {row['id']} ended after attempt {number + 1} had begun."


def refused_is_not_settled(evidence: Evidence, _: Config) -> Iterator[str]:
    """An answer that was refused as late did not settle its attempt as well. A relay that cut off a handler while the
    commit of its `complete` was under way says truly that it does not know."""
    for late in evidence.late:
        claim = evidence.claim(late)
        if claim is None:
            yield f"Message {late['id']} has a late answer of attempt {late['attempt']}, which was never claimed."
        elif claim["worker"] == late["worker"] and (
            claim["verb"] == "settle" or (claim["verb"] == "complete" and late["answer"] != "unknown")
        ):
            yield f"Attempt {late['attempt']} of message {late['id']} was settled and refused by the same worker."


def budgets(evidence: Evidence, config: Config) -> Iterator[str]:
    """No message has spent more than it had; a claim spends one at most, a crash or a hand back nothing."""
    for message, rows in evidence.of_message("attempts").items():
        before = 0
        for row in rows:
            if row["spent"] > config.attempts_max:
                yield f"Message {message} has spent {row['spent']} attempts of {config.attempts_max}."
            allowed = 1 if row["verb"] in {"settle", "complete"} else 0
            if row["spent"] > before + allowed:
                yield f"Attempt {row['attempt']} of message {message} ({row['verb']}) spent {row['spent'] - before}."
            before = row["spent"]
    for row in evidence.parked:
        if row["lookups"] > config.lookups_max or row["crashes"] > config.crashes_max:
            yield f"Message {row['id']} is over budget: {row['lookups']} lookups, {row['crashes']} crashes."


def records_commit_with_outcomes(evidence: Evidence, config: Config) -> Iterator[str]:
    """What `record` wrote is there exactly for the attempts that settled with an answer; the same for `complete`."""
    if evidence.recorded is None or evidence.completed is None:
        return
    settled = {
        (row["id"], row["attempt"])
        for row in evidence.attempts
        if row["destination"] in config.records
        and row["verb"] == "settle"
        and row["answer"] is not None
        and not (row["code"] or "").startswith("RECORD_")
    }
    completed = {(row["id"], row["attempt"]) for row in evidence.attempts if row["verb"] == "complete"}
    for what, rows, ended in (("record", evidence.recorded, settled), ("complete", evidence.completed, completed)):
        written = {(row["id"], row["attempt"]) for row in rows}
        for message, attempt in sorted(written - ended):
            yield f"{what} of attempt {attempt} of message {message} is committed, and its outcome is not."
        for message, attempt in sorted(ended - written):
            yield f"Attempt {attempt} of message {message} is settled, and its {what} is not committed."


def quiescence(evidence: Evidence, _: Config) -> Iterator[str]:
    """When producers and faults have stopped, everything ends by itself; only behind a halted head it waits."""
    halted: dict[int, int] = {}
    for row in evidence.parked:
        if row["lane"] is not None and row["halts"]:
            halted[row["lane"]] = min(row["sequence"], halted.get(row["lane"], row["sequence"]))
    for row in evidence.pending:
        if row["lane"] in halted and row["sequence"] > halted[row["lane"]]:
            continue
        suspect = ", a suspect" if row["suspect"] else ""
        yield f"Message {row['id']} for {row['destination']} is still pending (due {row['due_at']}{suspect})."
    for row in evidence.leases:
        yield f"Message {row['id']} for {row['destination']} is still leased by {row['worker']}."


RULES: Final[dict[str, Rule]] = {
    "no loss": no_loss,
    "no ghost": no_ghost,
    "atomic with the business row": atomic_with_business,
    "one row per key": one_row_per_key,
    "conservation": conservation,
    "closed is closed": closed_is_closed,
    "archive complete": archive_is_complete,
    "one live attempt": one_live_attempt,
    "outcome only by the current attempt": refused_is_not_settled,
    "budgets": budgets,
    "record commits with the outcome": records_commit_with_outcomes,
    "quiescent": quiescence,
}
