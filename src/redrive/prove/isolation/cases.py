"""Every case, in the order in which they are run."""

from __future__ import annotations

from typing import Final

from redrive.prove.isolation import claims, open_transaction, rate, upkeep
from redrive.prove.isolation.case import Case

CASES: Final[dict[str, Case]] = {
    case.name: case for case in (open_transaction.CASE, claims.CASE, upkeep.CASE, rate.CASE)
}
