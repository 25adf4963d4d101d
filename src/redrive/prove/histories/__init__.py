"""Random histories: what every system that is proven by them shares, and those of the engine.

`commands` (a script's lines), `environment` (servers, databases), `fork_server` (processes by fork), `campaign` (many
of them, shrunk where one is violated). The engine's own: `drawing` makes a history of a seed, `running` carries it out,
`destinations` is the app that its relays run, `judging` finds violations.
"""
