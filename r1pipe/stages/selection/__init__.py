"""Selection of stage 3, out of core: reading and judging rows, choosing among them, writing what was chosen."""
