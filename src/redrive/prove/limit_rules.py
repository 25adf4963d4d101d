"""What must hold of limits, as the destination sees them. Each rule yields one sentence with ids for a violation."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from redrive.prove.config import Config
from redrive.prove.effect_rules import is_late
from redrive.prove.evidence import Evidence, Row
from redrive.prove.script import OUTAGE
from redrive.prove.store_rules import Rule

# Two outages are further apart than this, and two requests in one are not.
OUTAGE_GAP_SECONDS: Final = 10.0
# Who may find out separately that a destination is down: relays, their children for suspects, and those started anew.
FINDERS_MAX: Final = 10


def never_too_many_at_once(evidence: Evidence, config: Config) -> Iterator[str]:
    """No more sends are under way than the destination allows over all relays, by the order of its own log."""
    for destination, limits in config.limited.items():
        most, message = _most_at_once(evidence, destination)
        if most > limits.global_concurrency:
            yield (
                f"{destination} had {most} sends under way when that of message {message} came;"
                f" it allows {limits.global_concurrency}."
            )


def never_too_many_a_second(evidence: Evidence, config: Config) -> Iterator[str]:
    """In any second at most the rate, rounded up, and what was claimed before and sent in it."""
    for destination, limits in config.limited.items():
        sends = _sends(evidence, destination)
        # Claims are counted; of those claimed earlier no more can be on their way than may be at once.
        allowed = math.ceil(limits.rate) + limits.global_concurrency
        for first, last in zip(sends, sends[allowed:], strict=False):
            if last["at"] - first["at"] < 1.0:
                yield (
                    f"{destination} had more than {allowed} sends in one second when that of message {last['id']} came;"
                    f" its rate is {limits.rate:g}."
                )
                break


def left_alone_when_down(evidence: Evidence, config: Config) -> Iterator[str]:
    """While it is down a destination sees a few sends until its breaker opens, and then one probe at a time."""
    for destination, limits in config.limited.items():
        for outage in _outages(evidence, destination):
            seconds = outage[-1]["at"] - outage[0]["at"]
            until_it_opens = FINDERS_MAX * (limits.failures - 1) + 1 + limits.global_concurrency
            allowed = until_it_opens + math.ceil(seconds / limits.cool_off_seconds)
            if len(outage) > allowed:
                yield (
                    f"{destination} was down for {seconds:.1f} s and saw {len(outage)} sends, the first of message"
                    f" {outage[0]['id']}; {allowed} are allowed."
                )


def counts(evidence: Evidence, config: Config) -> dict[str, int]:
    """For the report: whether the limits were met at all."""
    found: dict[str, int] = {}
    for destination in config.limited:
        sends = _sends(evidence, destination)
        found[f"sends seen by {destination}"] = len(sends)
        found["most of them at once"] = _most_at_once(evidence, destination)[0]
        found["most of them in one second"] = most_in_a_second([line["at"] for line in sends])
        found["times that it was down"] = len(_outages(evidence, destination))
        found["sends seen meanwhile"] = sum(line["fault"] == OUTAGE for line in sends)
    return found


def most_in_a_second(times: Sequence[float]) -> int:
    """Wherever the second begins."""
    ordered = sorted(times)
    most, begin = 0, 0
    for end, at in enumerate(ordered):
        while at - ordered[begin] >= 1.0:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def _sends(evidence: Evidence, destination: str) -> Sequence[Row]:
    """Without those of a process that was frozen while its claim ran out: no limit can hold those back."""
    return [line for line in evidence.sends() if line["destination"] == destination and not is_late(evidence, line)]


def _most_at_once(evidence: Evidence, destination: str) -> tuple[int, str]:
    """And the message that made it so many. A send is over with its last line."""
    lines = [
        line
        for line in evidence.observed
        if line["call"] == "send" and line["destination"] == destination and not is_late(evidence, line)
    ]
    last = {(line["id"], line["attempt"]): place for place, line in enumerate(lines)}
    under_way: set[tuple[str, int]] = set()
    most, by = 0, ""
    for place, line in enumerate(lines):
        claim = line["id"], line["attempt"]
        under_way.add(claim)
        if len(under_way) > most:
            most, by = len(under_way), line["id"]
        if last[claim] == place:
            under_way.discard(claim)
    return most, by


def _outages(evidence: Evidence, destination: str) -> Sequence[Sequence[Row]]:
    down = [line for line in _sends(evidence, destination) if line["fault"] == OUTAGE]
    begun = 0
    numbered: list[tuple[int, Row]] = []
    for place, line in enumerate(down):
        begun += place > 0 and line["at"] - down[place - 1]["at"] > OUTAGE_GAP_SECONDS
        numbered.append((begun, line))
    return [[line for _, line in group] for _, group in groupby(numbered, key=lambda pair: pair[0])]


RULES: Final[Mapping[str, Rule]] = {
    "never too many at once": never_too_many_at_once,
    "never too many a second": never_too_many_a_second,
    "left alone when down": left_alone_when_down,
}
