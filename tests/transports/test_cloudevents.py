"""A message as a CloudEvent, as the specification's bindings want it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from redrive.errors import InvalidValue
from redrive.transports.cloudevents import CloudEvents
from tests.support import messages as m

ATTRIBUTES = {
    "specversion": "1.0",
    "id": str(m.SOME_ID),
    "source": "/shop",
    "type": "order.placed",
    "time": m.START.isoformat().replace("+00:00", "Z"),
}


def test_binary_has_the_attributes_in_headers_and_the_payload_as_it_is() -> None:
    event = CloudEvents("/shop").wrap(m.attempt())
    assert event.attributes == {f"ce-{name}": value for name, value in ATTRIBUTES.items()}
    assert (event.content_type, event.body) == ("application/json", b'{"order":1}')


def test_structured_has_everything_in_one_json() -> None:
    attributes, content_type, body = CloudEvents("/shop", mode="structured").wrap(m.attempt())
    assert (attributes, content_type) == ({}, "application/cloudevents+json")
    assert json.loads(body) == {**ATTRIBUTES, "datacontenttype": "application/json", "data": {"order": 1}}


def test_what_is_no_json_is_carried_as_base64() -> None:
    _, _, body = CloudEvents("/shop", mode="structured").wrap(m.attempt(body=b"\xff\x00", content_type="image/png"))
    assert base64.b64decode(json.loads(body)["data_base64"]) == b"\xff\x00"
    assert "data" not in json.loads(body)


def test_without_a_kind_the_type_is_the_destination_and_the_ordering_key_is_the_subject() -> None:
    attributes, _, _ = CloudEvents("/shop").wrap(m.attempt(kind="", order_by="Käufer 1"))
    assert attributes["ce-type"] == m.DESTINATION
    assert attributes["ce-subject"] == "K%C3%A4ufer%201"


def test_a_protocol_has_its_own_prefix_and_may_hold_any_text() -> None:
    event = CloudEvents("/shop").wrap(m.attempt(order_by="Käufer 1"), prefix="ce_", is_encoded=False)
    assert event.attributes["ce_subject"] == "Käufer 1"


@pytest.mark.parametrize("values", [{"source": ""}, {"source": "/s", "mode": "batch"}])
def test_nonsense_is_refused_where_it_is_declared(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        CloudEvents(**values)
