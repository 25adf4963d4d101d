"""python sign_up.py EMAIL: one customer, one transaction."""

import os
import sys

import psycopg
from shop import sign_up

with psycopg.connect(os.environ["REDRIVE_DSN"]) as conn:  # commits at the end, or not at all
    conn.execute("CREATE TABLE IF NOT EXISTS users (email text PRIMARY KEY)")
    receipt = sign_up(conn, sys.argv[1])
    if "--fail" in sys.argv:
        raise SystemExit("Something went wrong before the commit.")
print(receipt.state, "already enqueued" if receipt.already_existed else "new", receipt.id)
