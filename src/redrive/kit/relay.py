"""A relay inside this process, and a PostgreSQL server of its own: for demos and proofs, not for applications."""

from redrive.events import Events
from redrive.operate import embedded
from redrive.relay.process import RelayProcess, run_relay, run_to_exit
from redrive.settings import RelayLimits

__all__ = ["Events", "RelayLimits", "RelayProcess", "embedded", "run_relay", "run_to_exit"]
