"""Claiming: how much to ask for, what was claimed, how long it is leased."""
