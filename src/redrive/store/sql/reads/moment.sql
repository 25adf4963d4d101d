-- The database's clock: what is shown as an age is never compared with another machine's time.
SELECT clock_timestamp() AS at
