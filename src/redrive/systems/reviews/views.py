"""What the console shows of reviews: the jobs, and of each its stages and notifications."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from redrive.system import View, headings

_READS: Final = files("redrive.systems.reviews") / "sql" / "reads"

VIEWS: Final = {
    "reviews": View(
        title="Reviews",
        lead="Each version of a changelist that was submitted, and how many of its recipients have been notified.",
        sql=_READS / "jobs_view.sql",
        columns=headings(
            "changelist_id state review_version repository findings notified created_at",
            review_version="Version",
            created_at="Submitted",
        ),
        position="job_id",
        state="state",
        message="message_id",
        search="Changelist or repository",
        nothing="A review is here as soon as the transaction that submitted it commits.",
    ),
    "parts": View(
        title="Stages and recipients",
        lead="What a review consists of: its way through fetch and llm, and one notification for each "
        "recipient. Search for "
        "a changelist to see one review.",
        sql=_READS / "parts_view.sql",
        columns=headings(
            "part state changelist_id review_version attempts error_class notified_at",
            review_version="Version",
            notified_at="Done",
        ),
        position="message_id",
        state="state",
        message="message_id",
        search="Changelist",
        nothing="Stages and notifications are here as soon as a review is submitted.",
    ),
}
