"""The tables of a system in `redrive.toml` (`System.from_settings`): a table becomes a dataclass, secrets are named."""

from redrive.operate.toml_destinations import Place
from redrive.operate.toml_destinations import part as read_table

__all__ = ["Place", "read_table"]
