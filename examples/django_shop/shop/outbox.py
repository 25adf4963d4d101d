"""What is sent: run by `manage.py redrive relay`."""

from smtplib import SMTPException, SMTPRecipientsRefused

from django.core.mail import EmailMessage
from django.utils import timezone

import redrive
from shop.models import Order

app = redrive.App()


@app.destination(
    "confirmation",
    classify={SMTPRecipientsRefused: redrive.Terminal("NO_SUCH_ADDRESS"), SMTPException: redrive.Retryable("SMTP")},
)
def confirm(message: redrive.Attempt) -> None:
    order = Order.objects.get(pk=message.payload["order"])
    mail = EmailMessage("Your order", f"Thank you for ordering {order.item}.", to=[order.email])
    mail.extra_headers["Message-ID"] = f"<{message.token}@shop.example>"  # the same at every attempt
    mail.send()
    Order.objects.filter(pk=order.pk).update(confirmed_at=timezone.now())
