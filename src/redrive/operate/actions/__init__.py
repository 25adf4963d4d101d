"""What an operator can do: one table of verbs (`table.py`), from which command line, API and console are made."""
