"""Rows, sources, chat templates and the built-in problems."""
