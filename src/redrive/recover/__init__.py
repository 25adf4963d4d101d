"""Periodic duties that heal and clean up; one relay at a time runs each of them."""
