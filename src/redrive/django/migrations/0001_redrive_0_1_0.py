"""The schema of Redrive 0.1.0, and the models that are read through it."""

from django.db import migrations, models

from redrive.django.operations import Upgrade


class Migration(migrations.Migration):
    initial = True
    atomic = False  # the upgrade has transactions of its own
    operations = [
        Upgrade(version="0.1.0", fingerprint="3cd032382ee591cd"),
        migrations.CreateModel(
            name="Destination",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("paused_at", models.DateTimeField(null=True)),
                ("paused_until", models.DateTimeField(null=True)),
                ("paused_by", models.TextField(null=True)),
                ("pause_reason", models.TextField(null=True)),
                ("breaker", models.TextField()),
                ("breaker_changed_at", models.DateTimeField(null=True)),
                ("breaker_until", models.DateTimeField(null=True)),
                ("breaker_code", models.TextField(null=True)),
                ("concurrency_limit", models.IntegerField(null=True)),
                ("rate_per_second", models.FloatField(null=True)),
            ],
            options={"db_table": '"redrive"."destination"', "managed": False, "default_permissions": ("view",)},
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("destination", models.TextField()),
                ("kind", models.TextField()),
                ("key", models.TextField(null=True)),
                ("tenant", models.TextField()),
                ("state", models.TextField()),
                ("order_by", models.TextField(null=True)),
                ("sequence", models.BigIntegerField(null=True)),
                ("level", models.SmallIntegerField()),
                ("content_type", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
            ],
            options={"db_table": '"redrive"."messages"', "managed": False, "default_permissions": ("view",)},
        ),
        migrations.CreateModel(
            name="Parked",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("reason", models.TextField()),
                ("destination", models.TextField()),
                ("tenant", models.TextField()),
                ("error_class", models.TextField()),
                ("last_text", models.TextField(null=True)),
                ("stage", models.TextField()),
                ("attempt", models.IntegerField()),
                ("spent", models.IntegerField()),
                ("crashes", models.IntegerField()),
                ("exhausted", models.BooleanField()),
                ("halts", models.BooleanField()),
                ("first_failed_at", models.DateTimeField()),
                ("last_failed_at", models.DateTimeField()),
                ("parked_at", models.DateTimeField()),
                ("in_doubt_since", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": '"redrive"."parked"',
                "managed": False,
                "default_permissions": ("view",),
                "verbose_name": "parked message",
            },
        ),
    ]
