"""Redrive as a Django app: `INSTALLED_APPS += ["redrive.django"]`.

Checks, `manage.py redrive`, a migration that brings the schema, read-only admin lists. Enqueueing needs none of it:
hand `django.db.connection` to `redrive.enqueue` (`redrive.produce.django`). Two settings:

    REDRIVE_APP = "shop.outbox:app"     where your handlers are declared
    REDRIVE_DATABASE = "default"        the alias in DATABASES that holds the messages
"""
