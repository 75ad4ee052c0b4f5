"""The embedded default's own data: problems, worked solutions, general requests, and the pre-training corpus."""
