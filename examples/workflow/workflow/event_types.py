"""Every event of the workflow domain, and what makes two of them the same.

Version: where the row counts its changes. Nothing (`by` left out): where it happens once in an entity's life.
Correlation: where only the request that caused it tells a repetition from a second occurrence.
TimestampBucket: where the same decision within a span is one.
"""

from redrive.systems.tenant import Correlation, EventTypes, TimestampBucket, Version

TYPES = EventTypes()
TYPES.declare("DefinitionPublished", category="definition", by=Version())
TYPES.declare("DefinitionUnpublished", category="definition", by=Version())
TYPES.declare("InstanceStarted", category="instance")
TYPES.declare("InstanceCompleted", category="instance")
TYPES.declare("InstanceFailed", category="instance")
TYPES.declare("InstanceForceCancelled", category="instance", by=Correlation())
TYPES.declare("GatewayDecided", category="gateway", by=TimestampBucket(seconds=60))
TYPES.declare("TaskCreated", category="task")
TYPES.declare("TaskClaimed", category="task", by=Version("revision"))
TYPES.declare("TaskCompleted", category="task")
TYPES.declare("TaskCancelled", category="task")
