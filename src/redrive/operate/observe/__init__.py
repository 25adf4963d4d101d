"""Metrics, health and traces of a relay, fed by its events."""
