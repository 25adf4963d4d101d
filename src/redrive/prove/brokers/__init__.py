"""`redrive prove brokers`: what is committed in one service has its effect once in another, with a broker between.

`campaign` runs real producers, relays, workers and a real broker, and kills, stops and cuts them off; `judge` believes
the producers' journals and the effects that the consumer's transactions left.
"""
