"""What a relay shows of itself to machines: metrics, health, traces. All of it is fed by the events."""
