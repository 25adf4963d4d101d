"""The rules of ordering keys. Each rule yields one sentence with ids for a violation."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from redrive.prove.config import Config
from redrive.prove.effect_rules import is_late
from redrive.prove.evidence import Evidence, Row
from redrive.prove.store_rules import CLOCK_SECONDS, Rule

Key = tuple[str, str]


def numbers_have_no_gaps(evidence: Evidence, _: Config) -> Iterator[str]:
    """The messages of a key are numbered 1 to n, each once, and the counter of the key says n."""
    counters = {(row["tenant"], row["order_by"]): row["last_sequence"] for row in evidence.counters}
    for key, messages in _lanes(evidence).items():
        numbers = [row["sequence"] for row in messages]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"Key {key[1]} has the numbers {_shortened(numbers)}; they must be 1 to n, each once."
        elif counters.get(key) != len(numbers):
            yield f"Key {key[1]} has {len(numbers)} messages, and its counter says {counters.get(key)}."


def no_message_overtakes(evidence: Evidence, _: Config) -> Iterator[str]:
    """The observer has seen the last send and effect of a message before the first send of the next one of its key."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, line in enumerate(evidence.lines("request", "effect")):
        if line["call"] == "send" and not is_late(evidence, line):
            first.setdefault(line["id"], place)
            last[line["id"]] = place
    for key, messages in _lanes(evidence).items():
        for before, after in pairwise([row for row in messages if row["id"] in first]):
            if last[before["id"]] > first[after["id"]]:
                yield (
                    f"Message {after['id']}, number {after['sequence']} of key {key[1]}, was sent before"
                    f" number {before['sequence']}, message {before['id']}, had been sent for the last time."
                )


def claimed_in_turn(evidence: Evidence, _: Config) -> Iterator[str]:
    """A message was claimed only after the one before it was closed, or given up where its key goes on."""
    in_the_way = {row["id"] for row in (*evidence.pending, *evidence.leases)}
    in_the_way |= {row["id"] for row in evidence.parked if row["halts"]}
    attempts = evidence.of_message("attempts")
    for key, messages in _lanes(evidence).items():
        for before, after in pairwise(messages):
            over = max((row["completed_at"] for row in attempts.get(before["id"], ())), default=math.inf)
            until = math.inf if before["id"] in in_the_way else over
            if any(claim["claimed_at"] + CLOCK_SECONDS < until for claim in evidence.claims(after["id"]).values()):
                yield (
                    f"Message {after['id']}, number {after['sequence']} of key {key[1]}, was claimed before"
                    f" number {before['sequence']}, message {before['id']}, was over."
                )


def no_key_was_forgotten(evidence: Evidence, _: Config) -> Iterator[str]:
    """The duty that looks for forgotten keys has never found one."""
    for row in evidence.mended:
        yield f"The duty {row['name']} had to wake {row['mended']} keys that no claim would have looked at."


def _lanes(evidence: Evidence) -> Mapping[Key, Sequence[Row]]:
    """The messages of each ordering key, by their numbers."""
    lanes: dict[Key, list[Row]] = defaultdict(list)
    for row in evidence.messages:
        if row["order_by"] is not None:
            lanes[row["tenant"], row["order_by"]].append(row)
    return {key: sorted(messages, key=lambda row: row["sequence"]) for key, messages in lanes.items()}


def _shortened(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:20]))
    return shown if len(numbers) <= 20 else f"{shown}, …"


RULES: Final[dict[str, Rule]] = {
    "numbers without gaps": numbers_have_no_gaps,
    "no message overtakes": no_message_overtakes,
    "claimed in turn": claimed_in_turn,
    "no key was forgotten": no_key_was_forgotten,
}
