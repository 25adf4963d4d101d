"""python ask.py EMAIL: what became of the welcome mail."""

import os
import sys

import psycopg

import redrive

with psycopg.connect(os.environ["REDRIVE_DSN"]) as conn:
    status = redrive.status(conn, key=f"welcome:{sys.argv[1]}")
print(status.state, "after", status.attempt, "attempts")
