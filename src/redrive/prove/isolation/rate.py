"""A destination has a rate, and more waits than it lets out.

What is promised is counted in claims: in any second no more than the rate, rounded up. A handler begins some time
after its claim; the promise holds for handlers too while that takes less than 25 ms, which a busy machine may exceed.
"""

from __future__ import annotations

import math
from typing import Final

from redrive.prove.isolation.environment import RATED, RATED_PER_SECOND, CaseEnvironment, Figure
from redrive.prove.limit_rules import most_in_a_second

MESSAGES: Final = 80
PROMPT_SECONDS: Final = 0.025
_CLAIMS = """
SELECT m.key, extract(epoch FROM a.claimed_at)::float8
  FROM redrive.attempt a JOIN redrive.message m ON m.id = a.message_id
 WHERE a.destination = %s AND a.claimed_at IS NOT NULL
"""


def run(environment: CaseEnvironment) -> list[Figure]:
    """The largest number in any second, wherever it begins; the first ones come after a quiet time."""
    environment.start_relay()
    environment.start_relay()
    keys = [f"rated/{number}" for number in range(MESSAGES)]
    environment.send(RATED, keys)
    environment.wait_begun(keys)
    begun = {key: min(times) for key, times in environment.begun().items()}
    environment.wait(lambda: len(environment.rows(_CLAIMS, RATED)) >= len(keys), seconds=10)
    claimed = dict(environment.rows(_CLAIMS, RATED))
    waited = {key: begun[key] - claimed[key] for key in claimed.keys() & begun.keys()}
    promptest = min(waited.values())  # the two clocks differ by so much, and a little
    late = sum(seconds - promptest > PROMPT_SECONDS for seconds in waited.values())
    most = math.ceil(RATED_PER_SECOND)
    whole = max(begun.values()) - min(begun.values())
    at_once = f"claimed in any second, at {RATED_PER_SECOND:g} a second by two relays"
    begins = f"begun in any second; {late} of {MESSAGES} began more than 25 ms after their claim"
    return [
        Figure(at_once, most_in_a_second(list(claimed.values())), "", bound=most),
        Figure(begins, most_in_a_second(list(begun.values())), "", bound=most + late),
        Figure("a second, over the whole time", (MESSAGES - most) / whole, ""),
    ]
