"""The reference page of the API, made from its OpenAPI description. Used by `tools.reference`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redrive.operate.web.app import API_PREFIX, create_app, description, routes_of
from redrive.operate.web.dependencies import Requirement
from redrive.operate.web.principal import LEAST_ROLE, Permission, Role
from tools.reference_text import paragraph, table, words


def http_page() -> Iterator[str]:
    app: Any = create_app("host=nowhere", systems={}).app
    needs = {(method, path): needed[0] for path, methods, needed in routes_of(app) for method in methods if needed}
    yield "# API"
    yield from paragraph(
        f"""Below `{API_PREFIX}`, served by `redrive console` ([how to](../how-to/run-the-console.md)); `GET
        {API_PREFIX}/openapi.json` is its OpenAPI description, with every field. A client sends a token (`Authorization:
        Bearer …`). The actor and the tenant are those of the token: neither can be named in a request.
        Another tenant's id answers as one that never was. Every POST needs an `Idempotency-Key`, new for each change;
        asked again with the same one within a day, the answer is the same. Lists are pages: `next` of one is `after` of
        the next. What is refused is a problem (RFC 9457) with a stable `code`."""
    )
    yield ""
    roles = [(f"`{role}`", words(one for one in Permission if _may(role, one))) for role in Role]
    yield from table(("role", "may"), roles)
    for tag, operations in _by_tag(description(app)).items():
        yield from ("", f"## {tag.capitalize()}", "")
        rows = [(f"`{m} {p}`", _needs(needs[m, API_PREFIX + p]), *_told(said)) for m, p, said in operations]
        yield from table(("operation", "needs", "does", "takes"), rows)


def _may(role: Role, permission: Permission) -> bool:
    order = tuple(Role)
    return order.index(role) >= order.index(LEAST_ROLE[permission])


def _by_tag(said: dict[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    found: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in said["paths"].items():
        for method, operation in methods.items():
            fields = _fields(said, operation)
            row = (method.upper(), path.removeprefix(API_PREFIX), {**operation, "fields": fields})
            found.setdefault(operation["tags"][0], []).append(row)
    return found


def _fields(said: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" not in schema:
        return []
    return list(said["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"])


def _needs(needed: Requirement) -> str:
    return f"`{needed.permission}`" + (", all tenants" if needed.all_tenants else "")


def _told(operation: dict[str, Any]) -> tuple[str, str]:
    given = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
    return " ".join(operation["description"].split()), words([*given, *operation["fields"]])
