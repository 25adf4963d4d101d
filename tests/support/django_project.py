"""A Django project as small as one can be, set up once in a process; its database is the one that a test names.

with on_database(dsn) as connection: ...
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

import redrive

app = redrive.App()
delivered: list[Any] = []


@app.destination("mail")
def mail(message: redrive.Attempt) -> None:
    delivered.append(message.payload)


if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "nobody_named_one_yet"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            *("django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes"),
            *("django.contrib.messages", "django.contrib.sessions", "redrive.django"),
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        REDRIVE_APP=f"{__name__}:app",
        ROOT_URLCONF="tests.support.django_urls",
        SECRET_KEY="of no use to anybody",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # some of these tests are coroutines


@contextmanager
def on_database(dsn: str) -> Iterator[Any]:
    """The project's default database is this one."""
    from django.db import connections

    kept = connections.databases["default"]
    connections.databases["default"] = {**kept, **django_names(dsn)}
    try:
        yield _anew("default")
    finally:
        connections["default"].close()
        connections.databases["default"] = kept
        _anew("default")


def _anew(alias: str) -> Any:
    from django.db import connections

    del connections[alias]
    return connections[alias]


def django_names(dsn: str) -> dict[str, Any]:
    parts = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {name: str(parts[part]) for name, part in names.items() if parts.get(part)}
