"""The lists of systems in the console: payments, found by the one seam, below row-level security."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.store.migrations import migrate
from redrive.system import System, discover
from redrive.systems import payments
from redrive.systems.payments import Instruction
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.console.hostile import faults_of
from tests.systems.payments.conftest import IBAN

pytestmark = pytest.mark.req("G-30", "G-21")


@pytest.fixture(scope="module")
def paying(house: House) -> House:
    """A house in which payments were submitted, of two tenants."""
    migrate.upgrade(house.dsn, sets=[migrate.MigrationSet("payments", payments.system.migrations)])  # type: ignore[arg-type]
    with psycopg.connect(house.dsn) as conn:
        for tenant in ("default", "acme"):
            payments.add_participant(conn, f"buyer of {tenant}", tenant=tenant)
            for number in range(60 if tenant == "default" else 2):
                payments.submit(
                    conn,
                    Instruction(
                        instruction_id=f"{tenant}-{number:03}",
                        participant_id=f"buyer of {tenant}",
                        rail_type="sepa",
                        amount="12.34",
                        currency="EUR",
                        destination={"iban": IBAN, "name": "<script>alert(1)</script>"},
                        tenant=tenant,
                    ),
                )
    return house


@pytest.fixture
async def admin(paying: House) -> AsyncIterator[Any]:
    async with asking(_app(paying, discover()), headers=await _headers(paying, "*")) as client:
        yield client


def _app(house: House, systems: dict[str, System]) -> Any:
    return create_app(house.dsn, AuthConfig(origin=ORIGIN), systems=systems)


async def _headers(house: House, tenant: str) -> dict[str, str]:
    return {**bearer(await house.token(Role.OPERATOR, tenant)), "Accept": "text/html"}


async def test_payments_are_listed_searched_and_paged(admin: Any) -> None:
    first = await admin.get("/systems/payments/payments")
    assert first.status_code == 200, first.text
    assert ">Payments</a>" in first.text.replace("\n", "")
    assert "default-059" in first.text
    assert "default-000" not in first.text
    assert IBAN not in first.text
    assert faults_of(first.text) == []
    found = await admin.get("/systems/payments/payments?search=default-007")
    assert "default-007" in found.text
    assert "default-008" not in found.text
    following = (
        first.text.rpartition('class="pager"><a class="button" href="')[2].partition('"')[0].replace("&amp;", "&")
    )
    assert "default-000" in (await admin.get(following)).text
    assert (await admin.get("/systems/payments/payments?before=nonsense")).status_code == 422


async def test_who_sees_one_tenant_sees_its_payments_only(paying: House) -> None:
    async with asking(_app(paying, discover()), headers=await _headers(paying, "acme")) as acme:
        seen = (await acme.get("/systems/payments/payments")).text
        assert "acme-001" in seen
        assert "default-0" not in seen
        assert (await acme.get("/systems/payments/findings")).status_code == 404
        assert "/systems/payments/findings" not in seen


async def test_findings_teach_where_there_are_none(admin: Any) -> None:
    assert "The books are compared by a duty" in (await admin.get("/systems/payments/findings")).text


async def test_without_the_system_there_is_no_page_and_no_link(paying: House) -> None:
    async with asking(_app(paying, {}), headers=await _headers(paying, "*")) as client:
        assert "/systems/" not in (await client.get("/")).text
        assert (await client.get("/systems/payments/payments")).status_code == 404
