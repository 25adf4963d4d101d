"""A provider that sends mail for others, with a log of its own, and the kit's mail server as a process."""
