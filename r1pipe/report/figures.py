"""Charts on the page: a frame with title, what it shows in words, and a place where the page's script draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from r1pipe.report.curves import Chart
from r1pipe.report.markup import Markup, h


@dataclass(slots=True)
class Figures:
    """The charts that were put on the page so far; their data goes to the script in one piece."""

    data: list[dict[str, Any]] = field(default_factory=list)

    def add(self, charts: Sequence[Chart]) -> Markup:
        """Frames for charts, side by side where there is room."""
        return h("div", [self._figure(chart) for chart in charts], class_="charts") if charts else Markup("")

    def _figure(self, chart: Chart) -> Markup:
        name = f"chart-{len(self.data)}"
        self.data.append(chart.data())
        words = chart.in_words()
        return h(
            "figure",
            h("figcaption", h("h4", chart.title), h("p", chart.about)),
            h("div", class_="plot", id=name, tabindex=0, role="group", aria_roledescription="chart",
              aria_label=f"{chart.title}; arrow keys read its values", aria_describedby=f"{name}-words"),
            h("div", class_="legend", id=f"{name}-legend"),
            h("p", words, class_="words", id=f"{name}-words"),
            h("details", h("summary", "as a table"),
              h("div", class_="scroll", tabindex=0, role="region", aria_label=f"{chart.title} as a table"),
              class_="numbers", data_chart=len(self.data) - 1),
        )  # fmt: skip
