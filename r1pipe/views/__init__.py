"""What the terminal shows: one module a view. Views build rich objects or plain data; only `r1pipe.console` prints."""
