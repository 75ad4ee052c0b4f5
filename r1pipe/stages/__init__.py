"""One module a stage; stages meet only in `r1pipe.pipeline`."""
