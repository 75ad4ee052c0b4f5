"use strict";
// Draws the charts and the samples from the data on the page. Text only ever reaches the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const COLOURS = 8;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const OTHER_DASH = [4, 4];

  function make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, found] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), found);
      else if (found === true) made.setAttribute(name, "");
      else if (found !== false && found !== null && found !== undefined) made.setAttribute(name, String(found));
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  const remembered = {
    get(name) { try { return window.sessionStorage.getItem(`r1pipe ${name}`); } catch { return null; } },
    set(name, text) { try { window.sessionStorage.setItem(`r1pipe ${name}`, text); } catch { /* a page from a file may have no storage */ } },
  };

  function shown(number) {
    if (number === null || number === undefined) return "–";
    const size = Math.abs(number);
    if (Number.isInteger(number)) return number.toLocaleString("en");
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return number.toExponential(2);
    return number.toFixed(size < 10 ? 3 : 1);
  }

  // --- theme

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const themeButton = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  function themed() {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    drawCharts();
  }
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered.set("theme", root.dataset.theme);
    themed();
  });
  dark.addEventListener("change", themed);
  const chosen = remembered.get("theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  // --- charts

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const plots = new Map(); // number -> { plot, hidden }

  function lineStyles(spec) {
    // a line of the other run has the colour of the same line of this one
    const names = [...new Set(spec.lines.map((line) => line.name))];
    return spec.lines.map((line) => {
      const place = names.indexOf(line.name);
      const dash = DASHES[Math.floor(place / COLOURS) % DASHES.length];
      return { colour: `--s${place % COLOURS}`, dash: line.other ? OTHER_DASH : dash };
    });
  }

  function faded(text) {
    return /^#[0-9a-f]{6}$/i.test(text) ? `${text}2e` : "transparent";
  }

  function options(spec, number, width) {
    const styles = lineStyles(spec);
    const ink = colour("--muted"), rule = colour("--line");
    const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 }, font: "12px system-ui, sans-serif" };
    const series = [{}], bands = [], values = [spec.x];
    spec.lines.forEach((line, place) => {
      const stroke = colour(styles[place].colour);
      series.push({
        label: line.name, stroke, width: 2, dash: styles[place].dash, spanGaps: true, show: !plots.get(number)?.hidden.has(place),
        points: { show: spec.x.length <= 12, size: 6, fill: stroke },
      });
      values.push(line.values);
    });
    spec.lines.forEach((line, place) => {
      if (!line.low) return;
      const fill = faded(colour(styles[place].colour));
      values.push(line.high, line.low);
      bands.push({ series: [values.length - 2, values.length - 1], fill });
      series.push({ width: 0, points: { show: false }, spanGaps: true }, { width: 0, points: { show: false }, spanGaps: true });
    });
    return [{
      width, height: 210, series, bands,
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false } },
      scales: {
        x: { time: false, ...(spec.doubling ? { distr: 3, log: 2 } : {}) },
        y: spec.share ? { range: [0, 1] } : {},
      },
      axes: [
        { ...axis, size: 30, label: spec.axis, labelSize: 18, labelGap: 0, labelFont: "12px system-ui, sans-serif",
          ...(spec.doubling ? { splits: () => spec.x, values: (_, ticks) => ticks.map(String) } : {}) },
        { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : shortTick(tick))) },
      ],
      hooks: { setCursor: [(plot) => readOut(number, plot.cursor.idx)] },
    }, values];
  }

  function shortTick(tick) {
    const size = Math.abs(tick);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return tick.toExponential(0);
    return String(Number(tick.toPrecision(6)));
  }

  function readOut(number, index) {
    const spec = data.charts[number];
    const legend = document.getElementById(`chart-${number}-legend`);
    const at = legend.querySelector(".at");
    if (!at) return;
    const inside = index !== null && index !== undefined;
    at.textContent = inside ? `at ${spec.axis} ${shown(spec.x[index])}` : "";
    legend.querySelectorAll("button").forEach((button, place) => {
      const found = inside ? spec.lines[place].values[index] : null;
      button.lastChild.textContent = label(spec.lines[place]) + (found === null || found === undefined ? "" : ` ${shown(found)}`);
    });
  }

  const label = (line) => (line.other ? `${line.name}, other run` : line.name);

  function swatch(style) {
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    picture.setAttribute("viewBox", "0 0 22 6");
    picture.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, found] of Object.entries({ x1: 0, x2: 22, y1: 3, y2: 3, "stroke-width": 3, stroke: `var(${style.colour})`, "stroke-dasharray": style.dash.join(" ") || "none" })) {
      line.setAttribute(name, found);
    }
    picture.append(line);
    return picture;
  }

  function drawLegend(spec, number) {
    const legend = document.getElementById(`chart-${number}-legend`);
    const styles = lineStyles(spec);
    legend.replaceChildren(
      ...spec.lines.map((line, place) => make("button", {
        type: "button", "aria-pressed": "true", title: "show or hide",
        onclick: (event) => {
          const { plot, hidden } = plots.get(number);
          const visible = hidden.has(place);
          if (visible) hidden.delete(place); else hidden.add(place);
          plot.setSeries(place + 1, { show: visible });
          event.currentTarget.setAttribute("aria-pressed", String(visible));
        },
      }, swatch(styles[place]), make("span", {}, label(line)))),
      make("span", { class: "at", role: "status" }),
    );
  }

  function drawChart(number) {
    const spec = data.charts[number], place = document.getElementById(`chart-${number}`);
    if (!place || !place.clientWidth) return;
    const before = plots.get(number);
    if (before) before.plot.destroy(); else drawLegend(spec, number);
    const [wanted, values] = options(spec, number, place.clientWidth);
    plots.set(number, { plot: new uPlot(wanted, values, place), hidden: before ? before.hidden : new Set() });
  }

  function drawCharts() { data.charts.forEach((_, number) => drawChart(number)); }

  function move(number, event) {
    const { plot } = plots.get(number) || {};
    if (!plot) return;
    const spec = data.charts[number], last = spec.x.length - 1, at = plot.cursor.idx ?? (event.key === "ArrowLeft" ? last + 1 : -1);
    const wanted = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") { plot.setCursor({ left: -10, top: -10 }); return; }
    if (wanted === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(last, wanted));
    plot.setCursor({ left: Math.round(plot.valToPos(spec.x[index], "x")), top: 20 });
    readOut(number, index);
  }

  function numbersTable(spec) {
    const every = Math.ceil(spec.x.length / 200);
    const rows = spec.x.map((_, index) => index).filter((index) => index % every === 0 || index === spec.x.length - 1);
    return make("table", {},
      make("caption", {}, spec.title),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, spec.axis), ...spec.lines.map((line) => make("th", { scope: "col", class: "number" }, label(line))))),
      make("tbody", {}, ...rows.map((index) => make("tr", {}, make("th", { scope: "row" }, shown(spec.x[index])),
        ...spec.lines.map((line) => make("td", { class: "number" }, shown(line.values[index])))))));
  }

  data.charts.forEach((spec, number) => {
    document.getElementById(`chart-${number}`)?.addEventListener("keydown", (event) => move(number, event));
  });
  document.querySelectorAll("details.numbers").forEach((details) => {
    details.addEventListener("toggle", () => {
      const frame = details.querySelector(".scroll");
      if (details.open && !frame.firstChild) frame.append(numbersTable(data.charts[Number(details.dataset.chart)]));
    });
  });
  let width = window.innerWidth, waiting = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's address bar changes the height only
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawCharts, 150);
  });

  // --- samples

  const MARKS = { right: "✓", some: "◐", wrong: "✗", unjudged: "?", none: "·" };
  const WORDS = { right: "right", some: "some right", wrong: "wrong", unjudged: "unjudged", none: "not judged by a rule" };
  const MOST_LISTED = 300;

  function outcome(samples) {
    const verdicts = samples.map((sample) => sample.verdict);
    if (!verdicts.length || verdicts.every((verdict) => verdict === "none")) return "none";
    const judged = verdicts.filter((verdict) => verdict === "right" || verdict === "wrong");
    if (!judged.length) return "unjudged";
    const right = judged.filter((verdict) => verdict === "right").length;
    return right === judged.length ? "right" : right ? "some" : "wrong";
  }

  function highlighted(text, query) {
    if (!query) return [text];
    const pieces = [], lower = text.toLowerCase();
    if (lower.length !== text.length) return [text];
    let from = 0;
    for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, from)) {
      pieces.push(text.slice(from, at), make("mark", {}, text.slice(at, at + query.length)));
      from = at + query.length;
    }
    return [...pieces, text.slice(from)];
  }

  function explorer(place) {
    const { checkpoints, problems } = data.samples;
    const first = 0, last = checkpoints.length - 1;
    const found = problems.map((problem) => {
      const outcomes = problem.samples.map(outcome);
      const text = [problem.question, problem.answer, ...problem.samples.flat().map((sample) => sample.text.join(""))].join("\n").toLowerCase();
      return { problem, outcomes, text, group: `${problem.domain} (${problem.language})` };
    });
    const SHOWS = {
      all: ["all problems", () => true],
      won: [`${checkpoints[first]} wrong, ${checkpoints[last]} right`, (one) => one.outcomes[first] === "wrong" && one.outcomes[last] === "right"],
      lost: [`${checkpoints[first]} right, ${checkpoints[last]} wrong`, (one) => one.outcomes[first] === "right" && one.outcomes[last] === "wrong"],
      wrong: [`${checkpoints[last]} wrong`, (one) => one.outcomes[last] === "wrong"],
      mixed: [`${checkpoints[last]} sometimes right`, (one) => one.outcomes[last] === "some"],
      unjudged: ["something unjudged", (one) => one.problem.samples.flat().some((sample) => sample.verdict === "unjudged")],
      unruled: ["not judged by a rule", (one) => one.outcomes.every((name) => name === "none")],
    };
    const search = make("input", { type: "search", id: "sample-search", placeholder: "words of a question or an answer", autocomplete: "off" });
    const show = make("select", { id: "sample-show" }, ...Object.entries(SHOWS).map(([name, [words]]) => make("option", { value: name }, words)));
    const groups = [...new Set(found.map((one) => one.group))].sort();
    const group = make("select", { id: "sample-group" }, make("option", { value: "" }, "every domain"), ...groups.map((name) => make("option", { value: name }, name)));
    const count = make("p", { class: "note", role: "status" });
    const list = make("div", { class: "list", role: "group", "aria-label": "Problems; arrow keys move" });
    const detail = make("div", { class: "detail" });
    let matching = [], current = 0;

    function filter(keep) {
      const query = search.value.trim().toLowerCase();
      matching = found.filter((one) => SHOWS[show.value][1](one) && (!group.value || one.group === group.value) && (!query || one.text.includes(query)));
      current = Math.max(0, matching.findIndex((one) => one.problem.id === keep));
      count.textContent = matching.length > MOST_LISTED
        ? `${matching.length.toLocaleString("en")} of ${found.length.toLocaleString("en")} problems; the first ${MOST_LISTED} are listed`
        : `${matching.length.toLocaleString("en")} of ${found.length.toLocaleString("en")} problems`;
      list.replaceChildren(...matching.slice(0, MOST_LISTED).map((one, number) => make("button", {
        type: "button", tabindex: number === current ? 0 : -1, "aria-current": number === current ? "true" : false, onclick: () => choose(number, false),
      }, make("bdi", { class: "asked" }, one.problem.question.replace(/\s+/g, " ").slice(0, 160)),
        make("span", { class: "verdicts", role: "img", "aria-label": one.outcomes.map((name, place) => `${checkpoints[place]} ${WORDS[name]}`).join(", ") },
          ...one.outcomes.map((name) => make("span", { class: name === "some" ? "unjudged" : name }, MARKS[name]))))));
      drawProblem();
    }

    function choose(number, focus) {
      const buttons = list.querySelectorAll("button");
      buttons[current]?.removeAttribute("aria-current");
      buttons[current]?.setAttribute("tabindex", "-1");
      current = Math.max(0, Math.min(matching.length - 1, number));
      const button = buttons[current];
      button?.setAttribute("aria-current", "true");
      button?.setAttribute("tabindex", "0");
      if (button) list.scrollTop = Math.max(0, Math.min(list.scrollTop, button.offsetTop - list.offsetTop), button.offsetTop - list.offsetTop + button.offsetHeight - list.clientHeight);
      if (focus) button?.focus({ preventScroll: true });
      drawProblem();
    }

    function drawSample(sample, query) {
      const [before, thinking, after] = sample.text;
      const mark = sample.verdict in MARKS ? MARKS[sample.verdict] : "·";
      const words = [`${mark} ${sample.verdict === "none" ? WORDS.none : sample.verdict}`];
      const facts = [`${sample.tokens.toLocaleString("en")} tokens`, sample.finish === "length" ? "cut off" : null].filter(Boolean).join(", ");
      const scores = Object.entries(sample.scores).map(([name, [value, note]]) => make("li", {}, `${name} ${value === null ? "unjudged" : shown(value)}${note ? `: ${note}` : ""}`));
      return make("div", { class: "sample" },
        make("div", {}, make("span", { class: `verdict ${sample.verdict}` }, ...words), make("span", { class: "small" }, ` · ${facts}`)),
        make("div", { class: "text", dir: "auto", tabindex: before.length + thinking.length + after.length > 600 ? 0 : false },
          ...highlighted(before, query), make("span", { class: "thinking" }, ...highlighted(thinking, query)), ...highlighted(after, query)),
        scores.length ? make("details", {}, make("summary", { class: "small" }, "scores"), make("ul", { class: "scores" }, ...scores)) : null);
    }

    function drawProblem() {
      const one = matching[current];
      if (!one) { detail.replaceChildren(make("p", {}, "No problem matches.")); return; }
      remembered.set("sample", JSON.stringify({ query: search.value, show: show.value, group: group.value, id: one.problem.id }));
      const { problem } = one, query = search.value.trim().toLowerCase();
      const facts = [problem.answer ? `answer ${problem.answer}` : null, one.group, problem.level ? `level ${problem.level}` : null, problem.kind === "verifiable" ? null : problem.kind];
      detail.replaceChildren(
        make("div", { class: "pager" },
          make("button", { type: "button", disabled: current === 0, onclick: () => choose(current - 1, false) }, "← previous"),
          make("button", { type: "button", disabled: current >= matching.length - 1, onclick: () => choose(current + 1, false) }, "next →"),
          make("span", { class: "note" }, `${current + 1} of ${matching.length.toLocaleString("en")}`)),
        make("p", { class: "question", dir: "auto" }, ...highlighted(problem.question, query)),
        make("p", { class: "note" }, facts.filter(Boolean).join(" · ")),
        make("div", { class: "columns" }, ...checkpoints.map((name, place) => make("div", { class: "column" },
          make("h4", {}, name), ...(problem.samples[place].length ? problem.samples[place].map((sample) => drawSample(sample, query)) : [make("p", { class: "note" }, "not asked")])))));
    }

    list.addEventListener("keydown", (event) => {
      const wanted = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: Math.min(matching.length, MOST_LISTED) - 1 }[event.key];
      if (wanted === undefined) return;
      event.preventDefault();
      choose(wanted, true);
    });
    let typing = 0;
    search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => filter(), 120); });
    show.addEventListener("change", () => filter());
    group.addEventListener("change", () => filter());
    let keep;
    try {
      const before = JSON.parse(remembered.get("sample") || "{}");
      if (typeof before.query === "string") search.value = before.query;
      if (before.show in SHOWS) show.value = before.show;
      if (groups.includes(before.group)) group.value = before.group;
      keep = before.id;
    } catch { keep = undefined; }
    place.replaceChildren(
      make("div", { class: "controls" },
        make("label", { class: "search", for: "sample-search" }, "Search", search),
        make("label", { for: "sample-show" }, "Show", show),
        make("label", { for: "sample-group" }, "Domain", group)),
      count, make("div", { class: "explorer" }, list, detail));
    filter(keep);
  }

  // --- start

  themed();
  const place = document.getElementById("explorer");
  if (place) explorer(place);

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  if ("IntersectionObserver" in window) {
    const seen = new Set();
    const watcher = new IntersectionObserver((entries) => {
      entries.forEach((entry) => (entry.isIntersecting ? seen.add(entry.target.id) : seen.delete(entry.target.id)));
      const here = [...links.keys()].find((name) => seen.has(name));
      links.forEach((link, name) => (name === here ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
    }, { rootMargin: "-60px 0px -60% 0px" });
    links.forEach((_, name) => { const section = document.getElementById(name); if (section) watcher.observe(section); });
  }

  if (data.live) {
    let version = null;
    setInterval(async () => {
      try {
        const answer = await fetch("version", { cache: "no-store" });
        const now = await answer.text();
        if (version !== null && answer.ok && now !== version) window.location.reload();
        version = now;
      } catch { /* the server was stopped: the page stays as it is */ }
    }, 3000);
  }
})();
