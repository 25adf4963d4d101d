"""python tell.py EMAIL TEXT...: mails that must arrive in this order."""

import os
import sys

import psycopg
from shop import tell

with psycopg.connect(os.environ["REDRIVE_DSN"]) as conn:
    tell(conn, sys.argv[1], sys.argv[2:])
