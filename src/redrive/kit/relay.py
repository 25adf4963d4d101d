"""A relay or a worker inside this process, and servers of its own: for demos and proofs, not for applications."""

from redrive.consume.process import WorkerProcess, run_worker
from redrive.events import Events
from redrive.operate import embedded
from redrive.relay.process import RelayProcess, run_relay, run_to_exit
from redrive.settings import RelayLimits

__all__ = [
    "Events",
    "RelayLimits",
    "RelayProcess",
    "WorkerProcess",
    "embedded",
    "run_relay",
    "run_to_exit",
    "run_worker",
]
