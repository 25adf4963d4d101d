"""The verbs of `redrive.ports.Store` in PostgreSQL, by the topics of `redrive.ports`: each calls one SQL function."""
