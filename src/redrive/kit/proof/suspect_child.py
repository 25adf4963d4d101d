"""The child of a proof's relay that runs suspects: the engine's own, with the failpoint of the environment."""

from redrive.events import Events
from redrive.kit.proof import failpoints
from redrive.relay.crash import suspect_child

if __name__ == "__main__":
    events = Events()
    failpoints.install(events)
    suspect_child.main(events)
