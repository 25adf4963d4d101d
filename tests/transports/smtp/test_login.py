"""Encryption and login: what is asked for is had, or nothing is sent; a password goes to nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive.answers import Answer
from redrive.app import App
from redrive.errors import SettingsError
from redrive.kit.proof.smtp_server import Act, Fault, SmtpServer, serving
from redrive.operate import toml_destinations
from redrive.operate.doctor_brokers import examine_brokers
from redrive.testing import make_attempt
from redrive.transports.smtp import SmtpTransport
from tests.transports.smtp.conftest import Certificate

PAYLOAD = {"to": "ada@example.com", "subject": "Welcome", "text": "Hello Ada."}
SECRET = "open sesame"
LOGIN: dict[str, Any] = {"username": "shop", "password": SECRET}


def transport(server: SmtpServer, **options: Any) -> SmtpTransport:
    return SmtpTransport("127.0.0.1", port=server.port, sender="shop@example.com", **options)


async def answer(server: SmtpServer, **options: Any) -> Any:
    try:
        return await transport(server, **options).send(make_attempt(PAYLOAD))
    except Answer as raised:
        return raised


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
@pytest.mark.req("R-09")
async def test_a_mail_goes_out_encrypted_and_with_a_login(certificate: Certificate, tls: Any) -> None:
    made = SmtpServer(context=certificate.context, implicit=tls == "implicit", needs_tls=True, logins={"shop": SECRET})
    async with serving(made) as server:
        found = await answer(server, tls=tls, ca_file=certificate.ca_file, **LOGIN)
        assert isinstance(found, redrive.Delivered)
        assert (server.mails[0].encrypted, server.mails[0].login) == (True, "shop")


async def test_starttls_is_the_default_and_a_server_without_it_gets_nothing(server: SmtpServer) -> None:
    server.logins = {"shop": SECRET}
    found = await answer(server, **LOGIN)
    assert (type(found), found.code, found.destination_down) == (redrive.Retryable, "SMTP_STARTTLS_MISSING", True)
    assert [command.partition(" ")[0] for command in server.commands] == ["EHLO"]


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_a_certificate_that_is_not_trusted_ends_it_before_the_login(certificate: Certificate, tls: Any) -> None:
    made = SmtpServer(context=certificate.context, implicit=tls == "implicit", logins={"shop": SECRET})
    async with serving(made) as server:
        found = await answer(server, tls=tls, **LOGIN)
        assert (type(found), found.code, found.destination_down) == (redrive.Retryable, "TLS_REFUSED", True)
        assert not [command for command in server.commands if command.startswith(("AUTH", "MAIL"))]


async def test_a_refused_login_is_terminal_and_names_no_password(certificate: Certificate) -> None:
    async with serving(SmtpServer(context=certificate.context, logins={"shop": "another"})) as server:
        found = await answer(server, ca_file=certificate.ca_file, **LOGIN)
    assert (type(found), found.code) == (redrive.Terminal, "SMTP_LOGIN_REFUSED")
    assert SECRET not in repr(found)


async def test_a_login_that_cannot_be_checked_now_is_retryable(server: SmtpServer) -> None:
    server.logins = {"shop": SECRET}
    server.faults["AUTH"] = Fault("454 4.7.0 Temporary authentication failure")
    found = await answer(server, tls="none", **LOGIN)
    assert (type(found), found.code) == (redrive.Retryable, "SMTP_454")
    server.faults.clear()
    assert isinstance(await answer(server, tls="none", **LOGIN), redrive.Delivered)


@pytest.mark.parametrize(("needs_tls", "logins"), [(True, {}), (False, {"shop": SECRET})])
async def test_a_server_that_wants_more_than_it_is_given_refuses_for_good(
    server: SmtpServer, needs_tls: bool, logins: dict[str, str]
) -> None:
    server.needs_tls, server.logins = needs_tls, logins
    found = await answer(server, tls="none")
    assert (type(found), found.code) == (redrive.Terminal, "SMTP_LOGIN_REFUSED")


async def test_a_server_that_offers_no_login_is_not_given_one(server: SmtpServer) -> None:
    found = await answer(server, tls="none", **LOGIN)
    assert (type(found), found.code) == (redrive.Terminal, "SMTP_LOGIN_REFUSED")
    assert [command.partition(" ")[0] for command in server.commands][:1] == ["EHLO"]


async def test_a_connection_lost_during_starttls_or_login_is_down(certificate: Certificate) -> None:
    async with serving(SmtpServer(context=certificate.context, logins={"shop": SECRET})) as server:
        for step in ("STARTTLS", "AUTH"):
            server.faults = {step: Fault(Act.HANG_UP)}
            found = await answer(server, ca_file=certificate.ca_file, **LOGIN)
            assert (type(found), found.destination_down) == (redrive.Retryable, True), step


def of_file(text: str) -> App:
    Path("redrive.toml").write_text(f'[destinations.mail]\ntransport = "smtp"\n{text}')
    return toml_destinations.app_from_file()


@pytest.mark.req("G-19")
def test_a_file_declares_it_and_names_where_the_password_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAIL_PASSWORD", SECRET)
    lines = 'host = "mail.test"\nsender = "shop@example.com"\nusername = "shop"\n'
    app = of_file(f'{lines}password_env = "MAIL_PASSWORD"\nport = 2525\ntls = "implicit"\nin_doubt = "hold"\n')
    assert app.destinations["mail"].rules.in_doubt == "hold"
    assert isinstance(app.destinations["mail"].transport, SmtpTransport)
    assert SECRET not in repr(vars(app.destinations["mail"].transport))
    with pytest.raises(SettingsError, match="password of 'mail' is a secret"):
        of_file(f'{lines}password = "{SECRET}"\n')
    with pytest.raises(SettingsError, match="host of 'mail' is missing"):
        of_file('sender = "shop@example.com"\n')
    with pytest.raises(SettingsError, match="no key 'mail'"):
        of_file(f'{lines}mail = "x"\n')


async def test_the_doctor_connects_and_logs_in_and_sends_nothing(server: SmtpServer) -> None:
    server.logins = {"shop": SECRET}
    app = App()
    app.transport("mail", transport(server, tls="none", **LOGIN))
    (risky,) = await examine_brokers(app, inbox_seconds=None)
    assert (risky.name, risky.verdict, risky.detail) == (
        "broker of mail",
        "warn",
        "the password is sent in clear text",
    )
    server.logins = {"shop": "another"}
    (refused,) = await examine_brokers(app, inbox_seconds=None)
    assert (refused.verdict, refused.detail) == ("fail", "it does not answer: SMTP_LOGIN_REFUSED")
    open_app = App()
    server.logins = {}
    open_app.transport("mail", transport(server, tls="none"))
    (well,) = await examine_brokers(open_app, inbox_seconds=None)
    assert (well.verdict, well.detail) == ("ok", "it answers, and takes mail from us")
    assert server.mails == []
