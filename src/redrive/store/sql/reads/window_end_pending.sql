-- Where a bounded search continues: the last row that it looked at; no row where nothing is behind it.
-- Relies on: pending's primary key, scanned backwards.
SELECT x.id FROM redrive.pending x WHERE x.id < %(before)s ORDER BY x.id DESC OFFSET %(window)s - 1 LIMIT 1
