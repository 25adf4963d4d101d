-- What the relays of each outbox published last.
SELECT o.destination, o.options, o.published_at FROM redrive_tenant.outbox o ORDER BY o.destination
