"""A small workflow engine: definitions with versions, instances, gateways and tasks, and their events."""
