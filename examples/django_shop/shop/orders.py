"""Placing an order: a row and a message, in one transaction."""

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

import redrive
from shop.models import Order


@transaction.atomic
def place_order(email: str, item: str) -> Order:
    order = Order.objects.create(email=email, item=item)
    redrive.enqueue(connection, "confirmation", {"order": order.pk}, key=f"confirmation:{order.pk}", order_by=email)
    return order


@csrf_exempt
@require_POST
def orders(request: HttpRequest) -> JsonResponse:
    order = place_order(request.POST["email"], request.POST["item"])
    return JsonResponse({"order": order.pk}, status=201)
