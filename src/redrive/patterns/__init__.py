"""Patterns on the engine's public names: what several systems need, and the engine does not."""
