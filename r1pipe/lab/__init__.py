"""Claims of the papers, put to the test in miniature: `r1pipe lab`."""
