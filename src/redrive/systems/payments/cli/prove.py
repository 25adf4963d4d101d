"""What `redrive prove payments` takes beside the options of every proof."""

from __future__ import annotations

from typing import Final

from redrive.operate.cli.histories import history_options

PROVE_OPTIONS: Final = history_options(200)
