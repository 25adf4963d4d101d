"""The verbs of the store in PostgreSQL, and the connections that carry them."""
