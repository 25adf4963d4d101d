"""The engine's random histories: `drawing` makes one of a seed, `running` carries it out, `destinations` is the app
of its relays, `judging` finds violations. What systems share is in `redrive.kit.proof`."""
