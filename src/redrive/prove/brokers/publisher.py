"""The app of the publishing service: `redrive relay` publishes its messages to the broker."""

from redrive.app import App
from redrive.kit.proof import brokers
from redrive.prove.brokers import config
from redrive.transports.cloudevents import CloudEvents

app = App()
app.transport(
    config.DESTINATION,
    brokers.kind(config.broker()).transport(config.port(), config.PLACE, cloudevents=CloudEvents(config.SOURCE)),
    **config.RULES,
)
