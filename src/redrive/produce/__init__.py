"""For producers: enqueue, status, wait and cancel on the caller's connection.

A driver is imported only after one of its connections was handed in: a producer needs nothing else.
"""
