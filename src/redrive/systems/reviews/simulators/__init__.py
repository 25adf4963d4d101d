"""A provider that sends mail for others, and a mail server, each with a log of its own: for the demo, the proof and
tests.
"""
