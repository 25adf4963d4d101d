"""Dispatching: what a destination has claimed and not begun, and one attempt from lookup to answer."""
