"""What a login without more than its role's grants can see and do through the command line."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.cli.conftest import SECRET, Redrive, Shop

As = Callable[[str], Redrive]


@pytest.fixture
def as_role(shop: Shop, restricted: str) -> As:
    """The command line, logged in as nobody but a member of one of Redrive's roles, for all tenants."""

    def login(role: str) -> Redrive:
        with psycopg.connect(shop.dsn, autocommit=True) as connection:
            connection.execute(f'GRANT {role} TO "{restricted}"'.encode())
            connection.execute(f"ALTER ROLE \"{restricted}\" SET redrive.tenant = '*'".encode())
        return Redrive(psycopg.conninfo.make_conninfo(shop.dsn, user=restricted))

    return login


READS = {
    "status": ["status"],
    "messages list": ["messages", "list"],
    "messages list pending": ["messages", "list", "--state", "pending"],
    "messages list closed": ["messages", "list", "--state", "closed"],
    "dead list": ["dead", "list"],
    "destinations list": ["destinations", "list"],
    "groups list": ["groups", "list"],
    "db check": ["db", "check"],
}


@pytest.mark.parametrize("role", ["redrive_viewer", "redrive_operator", "redrive_auditor"])
def test_a_reader_sees_every_list_and_every_message(as_role: As, shop: Shop, role: str) -> None:
    reader = as_role(role)
    for arguments in READS.values():
        assert reader(*arguments).exit_code == 0, (arguments, reader(*arguments).stderr)
    message = reader.json("messages", "show", shop["dead"])
    assert (message["view"]["body_bytes"], message["payload"]) == (None, None)
    assert (message["acts"] is None) == (role == "redrive_viewer")


@pytest.mark.parametrize("role", ["redrive_viewer", "redrive_operator", "redrive_auditor"])
def test_a_payload_needs_a_privilege_of_its_own(as_role: As, shop: Shop, role: str) -> None:
    result = as_role(role)("messages", "show", shop["dead"], "--payload")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "This login may not read payloads." in result.stderr
    assert SECRET not in result.stderr


BLIND = {
    **{name: words for name, words in READS.items() if name not in ("status", "db check")},
    "held list": ["held", "list"],
    "unrecorded list": ["unrecorded", "list"],
    "keys list": ["keys", "list"],
    "replay list": ["replay", "list"],
}


@pytest.mark.req("G-15")
@pytest.mark.parametrize("name", BLIND)
def test_a_login_that_may_not_see_messages_is_told_so_instead_of_that_there_are_none(
    shop: Shop, restricted: str, name: str
) -> None:
    """A reader who has chosen no tenant: row-level security shows none, whatever waits."""
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(f'GRANT redrive_viewer TO "{restricted}"'.encode())
    blind = Redrive(psycopg.conninfo.make_conninfo(shop.dsn, user=restricted))
    for arguments in (BLIND[name], [*BLIND[name], "--json"]):
        result = blind(*arguments)
        assert (result.exit_code, result.stdout) == (4, "")
        assert "may not see any message" in result.stderr


def test_nor_is_it_told_that_a_message_which_it_may_not_see_does_not_exist(shop: Shop, restricted: str) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(f'GRANT redrive_operator TO "{restricted}"'.encode())
    blind = Redrive(psycopg.conninfo.make_conninfo(shop.dsn, user=restricted))
    for arguments in (["messages", "show"], ["dead", "show"], ["messages", "requeue", "--reason", "x"]):
        result = blind(*arguments, shop["dead"])
        assert (result.exit_code, result.stdout) == (4, ""), result.stderr
        assert "it may see one tenant at a time and has chosen none" in result.stderr


def test_status_and_health_say_what_a_login_may_not_see(shop: Shop, restricted: str) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(f'GRANT redrive_viewer TO "{restricted}"'.encode())
    blind = Redrive(psycopg.conninfo.make_conninfo(shop.dsn, user=restricted))
    assert [found["code"] for found in blind.json("status")["findings"]] == ["no_tenant"]
    assert blind("status", "--fail-on", "findings").exit_code == 6
    assert blind("health").exit_code == 6


def test_a_login_for_which_there_is_no_policy_is_told_so(shop: Shop, restricted: str) -> None:
    """As after a restore under another owner: it may read the tables, and row-level security shows it nothing."""
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(f'GRANT USAGE ON SCHEMA redrive TO "{restricted}"'.encode())
        connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA redrive TO "{restricted}"'.encode())
        connection.execute(f'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA redrive TO "{restricted}"'.encode())
        connection.execute(f"ALTER ROLE \"{restricted}\" SET redrive.tenant = '*'".encode())
    blind = Redrive(psycopg.conninfo.make_conninfo(shop.dsn, user=restricted))
    result = blind("dead", "list")
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(f'DROP OWNED BY "{restricted}"'.encode())
    assert (result.exit_code, result.stdout) == (4, "")
    assert "no policy of row-level security is for it" in result.stderr


def test_an_operator_acts(as_role: As, shop: Shop) -> None:
    operator = as_role("redrive_operator")
    assert operator("messages", "requeue", shop["dead"], "--reason", "x").exit_code == 0
    assert operator("held", "confirm", shop["held"], "--reason", "x").exit_code == 0
    assert operator("destinations", "pause", "shop", "--reason", "x").exit_code == 0


@pytest.mark.parametrize("role", ["redrive_viewer", "redrive_auditor"])
def test_a_reader_may_not_act_and_is_told_which_role_may(as_role: As, shop: Shop, role: str) -> None:
    reader = as_role(role)
    for arguments in (["messages", "requeue", shop["dead"]], ["destinations", "pause", "shop"]):
        result = reader(*arguments, "--reason", "x")
        assert (result.exit_code, result.stdout) == (4, "")
        assert "redrive_operator" in result.stderr
    assert shop.state("dead") == "parked·dead"


def test_a_relays_login_reads_the_values_and_one_that_sees_a_tenant_does_not(as_role: As) -> None:
    """They are of all tenants."""
    assert as_role("redrive_viewer")("metrics").exit_code == 4
    assert as_role("redrive_relay")("metrics").exit_code == 0


def test_a_login_without_any_role_is_told_so(shop: Shop, restricted: str) -> None:
    stranger = Redrive(psycopg.conninfo.make_conninfo(shop.dsn, user=restricted))
    assert stranger("status").exit_code == 4


def test_a_viewer_is_shown_the_oldest_snapshot_of_another_login_as_far_as_it_may_see_it(
    shop: Shop, as_role: As
) -> None:
    with psycopg.connect(shop.dsn) as forgetful:
        forgetful.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        forgetful.execute("SELECT count(*) FROM redrive.pending")
        holder = as_role("redrive_viewer").json("status")["oldest_holder"]
        assert (holder["pid"], holder["state"], holder["since"]) == (forgetful.info.backend_pid, None, None)
