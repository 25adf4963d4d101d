"""`redrive prove isolation`: what one message, caller or peer can do to the others, measured here and now (G-31).

A case makes trouble for one destination and measures what another notices, or what a verb costs where much is
declared and nothing is to be done. Each figure stands beside its bound.
"""
