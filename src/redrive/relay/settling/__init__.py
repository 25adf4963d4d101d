"""Settling: outcomes are written in bulk or one by one, and an ordering key is handed over."""
