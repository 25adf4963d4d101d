"""The store: every verb is a function in PostgreSQL; this package calls them and keeps the schema current."""
