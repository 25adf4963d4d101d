"""Orders, and the admin with the lists of Redrive."""

from django.contrib import admin
from django.urls import path

from shop.orders import orders

urlpatterns = [path("orders", orders), path("admin/", admin.site.urls)]
