"""Models of the outbox for an ORM: a row of the view `redrive_tenant.outbox_messages` is an event (T-11).

`sqlalchemy` and `django` are imported by the application that uses them; neither library is a dependency. Adding a
model is an enqueue in the transaction of its session or connection. A model without a key gets one: by the recipe of
its event type where the model knows its event types, else a new one.
"""
