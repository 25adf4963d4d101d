"""What the shop knows."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    item = models.CharField(max_length=100)
    confirmed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"order {self.pk}: {self.item}"
