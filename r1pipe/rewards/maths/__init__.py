"""Maths answers: typed comparison of a final answer with a gold answer. See docs/verifier.md for the rules."""
