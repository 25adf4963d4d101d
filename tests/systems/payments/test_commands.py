"""`redrive payments submit|show|participants`, as a script runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.systems.payments.conftest import IBAN, Run


def _submit(run: Run, participant: str, *more: str, amount: str = "12.34", currency: str = "EUR") -> Result:
    options = ["--instruction", f"{participant}/1", "--participant", participant, "--rail", "sepa", "--amount", amount]
    return run("submit", *options, "--currency", currency, "--to", f"iban={IBAN}", *more)


@pytest.mark.req("P-01")
def test_a_payment_is_submitted_once_and_shown(run: Run, participant: str) -> None:
    first = json.loads(_submit(run, participant, "--json").stdout)["items"][0]
    again = json.loads(_submit(run, participant, "--json").stdout)["items"][0]
    assert (first["sequence_id"], first["already_existed"], first["state"]) == (1, False, "pending")
    assert again == {**first, "already_existed": True}
    shown = json.loads(run("show", f"{participant}/1", "--json").stdout)
    assert [one["outbox_id"] for one in shown["intents"]] == [first["outbox_id"]]
    page = run("show", f"{participant}/1").stdout
    assert "12.34 EUR" in page
    assert "…6199" in page
    assert IBAN not in page


def test_what_cannot_be_paid_is_refused_with_field_value_and_rule(run: Run, participant: str) -> None:
    refused = _submit(run, participant, amount="12.345")
    assert refused.exit_code == 2
    assert "amount is '12.345'; EUR has 2 decimals" in " ".join(refused.stderr.split())


def test_an_instruction_that_nobody_submitted_is_not_found(run: Run) -> None:
    assert run("show", "nothing").exit_code == 3


def test_a_file_is_submitted_as_a_whole_or_not_at_all(run: Run, participant: str, tmp_path: Path) -> None:
    right = {
        "instruction_id": f"{participant}/1",
        "participant_id": participant,
        "rail_type": "sepa",
        "amount": 0.1,  # in the file it is the text 0.1, and stays it
        "currency": "EUR",
        "destination": {"iban": IBAN},
    }
    file = tmp_path / "payments.ndjson"
    wrong = {**right, "instruction_id": f"{participant}/2", "sequence_id": 7}
    file.write_text("\n".join(map(json.dumps, (right, wrong))))
    refused = run("submit", "--file", str(file))
    assert refused.exit_code == 2
    assert "Line 2: SEQUENCE_GIVEN" in refused.stderr
    assert run("show", f"{participant}/1").exit_code == 3
    file.write_text(json.dumps(right))
    assert run("submit", "--file", str(file)).exit_code == 0
    assert "0.10 EUR" in run("show", f"{participant}/1").stdout


def test_participants_are_added_once_and_listed_with_their_next_number(run: Run, participant: str) -> None:
    assert "known now" in run("participants", "add", f"{participant}-b", "--name", "Bee").stderr
    assert json.loads(run("participants", "add", participant, "--json").stdout)["already_existed"] is True
    _submit(run, participant)
    listed = json.loads(run("participants", "list", "--limit", "500", "--json").stdout)
    assert {one["participant_id"]: one["next_sequence_id"] for one in listed["items"]}.items() >= {
        participant: 2,
        f"{participant}-b": 1,
    }.items()
    assert "Bee" in run("participants", "list", "--limit", "500").stdout
    assert "--after" in run("participants", "list", "--limit", "1").stderr


def test_without_its_extra_the_system_is_found_and_its_commands_say_what_is_missing() -> None:
    """In a process of its own: here the libraries are loaded already."""
    code = (
        "import sys; sys.modules.update(iso4217=None, stdnum=None, aiohttp=None);"
        "from redrive.operate.cli.main import cli; cli.main(['payments', 'submit', '--file', '-'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "pip install 'redrive[payments]'" in done.stderr
