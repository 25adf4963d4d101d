"""Everything that is read for people: status, messages, groups, dashboards, checks. Nothing here writes."""
