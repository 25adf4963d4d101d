"""The command line, one file per noun. No SQL here, and no decision about a message."""
