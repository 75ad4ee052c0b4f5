"""The report: a run as one HTML file that opens offline. `build.write_report` makes it, `page` lays it out,
and the rest says what is in it."""
