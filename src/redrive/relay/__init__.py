"""The relay: claim, dispatch, settle. `loop.py` builds a relay from its parts."""
