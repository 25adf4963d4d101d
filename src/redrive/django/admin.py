"""Read-only lists in Django's admin. Operators act with `manage.py redrive`, where acts are audited.

A page costs what it shows, however long the history: no other sorting or filters, and rows are counted up to
`ROWS_MAX`.
"""

from functools import cached_property
from typing import Any, Final
from uuid import UUID

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import connections
from django.db.models.expressions import RawSQL
from django.utils.html import format_html, format_html_join

from redrive.django import database
from redrive.django.models import Destination, Message, Parked

ROWS_MAX: Final = 1000  # further back: by id or key
ATTEMPTS_MAX: Final = 200
_KEY: Final = (
    "SELECT message_id FROM redrive.idempotency WHERE tenant = 'default' AND key_hash = sha256(convert_to(%s, 'UTF8'))"
)
_HISTORY: Final = (
    "SELECT coalesce(completed_at, claimed_at), verb, destination, stage, attempt, coalesce(closed, settlement, ''),"
    " coalesce(code, ''), coalesce(text, '') FROM redrive.history WHERE message_id = %s ORDER BY 1 LIMIT %s"
)
_HISTORY_HEAD: Final = ("at", "verb", "destination", "stage", "attempt", "then", "code", "text")


class FirstRows(Paginator):
    """A count of the whole archive would cost more with every day."""

    @cached_property
    def count(self) -> int:
        counted: int = self.object_list.order_by()[:ROWS_MAX].count()
        return counted


class ReadOnlyAdmin(admin.ModelAdmin):
    paginator = FirstRows
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 0
    sortable_by = ()
    actions = None

    def _never(self, *_: Any) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never


class ByIdAdmin(ReadOnlyAdmin):
    ordering = ("-id",)
    search_fields = ("id",)

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:  # noqa: ARG002
        term = search_term.strip()
        return self.found(queryset, term) if term else queryset, False

    def found(self, queryset: Any, term: str) -> Any:
        return queryset.filter(id=_as_id(term))


@admin.register(Message)
class MessageAdmin(ByIdAdmin):
    list_display = ("id", "destination", "kind", "key", "tenant", "state", "created_at")
    search_help_text = "A message id, or an idempotency key of the tenant default; the whole of it."
    readonly_fields = ("history",)

    def found(self, queryset: Any, term: str) -> Any:
        if _as_id(term):
            return super().found(queryset, term)
        return queryset.filter(id__in=RawSQL(_KEY, [term]))  # noqa: S611 - a constant, and a value

    @admin.display(description="attempts and acts")
    def history(self, message: Message) -> Any:
        with connections[database.alias()].cursor() as cursor:
            cursor.execute(_HISTORY, [message.id, ATTEMPTS_MAX])
            rows = cursor.fetchall()
        head = format_html_join("", "<th>{}</th>", ((name,) for name in _HISTORY_HEAD))
        body = format_html_join("", "<tr>{}</tr>", ((format_html_join("", "<td>{}</td>", zip(row)),) for row in rows))
        return format_html("<table><tr>{}</tr>{}</table>", head, body)


@admin.register(Parked)
class ParkedAdmin(ByIdAdmin):
    list_display = ("id", "reason", "destination", "error_class", "last_text", "attempt", "parked_at")
    search_help_text = "A message id."


@admin.register(Destination)
class DestinationAdmin(ReadOnlyAdmin):
    list_display = ("name", "paused_at", "paused_until", "pause_reason", "breaker", "breaker_until", "breaker_code")
    ordering = ("name",)


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
