"""The proof kit: what `redrive prove engine`, `desk` and the proofs of systems share. Nothing here judges.

`proving` opens what a proof needs: a directory, a database and an `environment` for its processes. `report` says how it
ended.

`commands`, `runner` and `history_campaign` are random histories: the script, the carrying out, and many of them, shrunk
where one is violated; `history_environment` has their servers, `fork_server` their processes.
"""
