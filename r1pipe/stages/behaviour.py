"""Where the report looks for how responses are written; the counting is `r1pipe.data.reflection`, which training needs too."""

from __future__ import annotations

from r1pipe.data.reflection import reflection_count, reflection_words

__all__ = ["reflection_count", "reflection_words"]
