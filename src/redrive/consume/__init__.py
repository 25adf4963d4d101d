"""Consumers of brokers: `App.consumer` declares one, `redrive worker` runs it. docs/explanation/consuming.md

`event` reads CloudEvents, `consumer` is the declaration, `sessions` the connections of handlers, `handling` one call,
`receiving` one message in one transaction, `worker` the loop, `transport` runs in a relay what was
deferred, `process` is the program.
"""
