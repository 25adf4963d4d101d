"""How a system declares its metrics (`System.metrics`): a relay shows them beside the engine's own."""

from redrive.operate.observe.catalogue import Feed, Kind, Metric

__all__ = ["Feed", "Kind", "Metric"]
