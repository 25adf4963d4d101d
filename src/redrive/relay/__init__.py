"""The relay: claim, dispatch, settle. `loop.py` is the table of contents; each other file decides one thing."""
