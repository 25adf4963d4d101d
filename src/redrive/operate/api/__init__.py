"""The API below /api/v1: what the command line can do, over the same operations."""

from redrive.operate.api.routes import router as router
