"""The desk: what a person does about failures. Groups, the workflow of a dead letter, replays, the audit.

One layer under command line, API and console: plain values in and out, no SQL, no words about terminals.
"""
