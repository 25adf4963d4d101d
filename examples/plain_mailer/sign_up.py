"""python sign_up.py ada@example.com"""

import sys

import psycopg
from mailer import sign_up

with psycopg.connect("") as conn:  # PGHOST, PGDATABASE, …
    conn.execute("CREATE TABLE IF NOT EXISTS users (email text PRIMARY KEY)")
    for email in sys.argv[1:]:
        sign_up(conn, email)
