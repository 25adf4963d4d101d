"""The app of the HTTP cases: one destination, to the URL that each message names."""

from redrive.answers import Answer
from redrive.app import App
from redrive.message import Attempt
from redrive.prove.isolation.app import QUICK, say_begun
from redrive.transports.http import Egress, HttpTransport

HERE = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}), ports=frozenset(range(1024, 65536)))


class Hooks(HttpTransport):
    """Says when it began to send."""

    async def send(self, attempt: Attempt) -> Answer:
        say_begun(attempt)
        return await super().send(attempt)


app = App()
app.transport(
    "hooks",
    Hooks(lambda message: message.payload["url"], egress=HERE),
    policy=QUICK,
    breaker=True,
    concurrency=20,
    timeout_seconds=5,
)
