"""Generation engines behind one small interface; see `r1pipe.engines.base`."""
