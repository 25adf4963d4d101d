"""The operator's half: settings, logs, command line, embedded PostgreSQL. It calls the engine, and is never called."""
