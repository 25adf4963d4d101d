"""What Django reads first: the app's name, and that it has checks."""

from django.apps import AppConfig


class RedriveConfig(AppConfig):
    name = "redrive.django"
    label = "redrive"
    verbose_name = "Redrive"

    def ready(self) -> None:
        from redrive.django import checks

        checks.register()
