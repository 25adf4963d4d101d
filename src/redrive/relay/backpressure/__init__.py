"""Backpressure: pauses, circuit breakers, rests and limit keys that stop claims of a destination."""
