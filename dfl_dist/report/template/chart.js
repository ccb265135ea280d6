// A line chart as wide as its place: axes, bands, a scale that may be logarithmic, a cursor that tells the values.
//
// A chart: id, title, note, form (how values are written), canLog, mark (a value to compare with), series, hidden (names
// of series that are not shown), legend, isPanel (one of several of a row, which has the title), peers (the series of
// all charts whose heights are to be compared with this one's), scale (log or not, shared by a row). A series: name,
// style, points with a place on each axis, y and perhaps a band from low to high, which is drawn with `edges` too; std
// where the band is a deviation. `view` is shared by all charts: the axis they are drawn against, how far each axis goes,
// and the range of accuracies: "shared" or "own" zooms in on those of all peers or of the chart alone; "full" is all.

const CHART_HEIGHT = 230;
const MARGIN = { top: 12, right: 14, bottom: 36, left: 52 };
const BOTTOM = CHART_HEIGHT - MARGIN.bottom;
const EARLY = 0.25; // of a line: the first rounds, in which accuracies rise
const LEFT_OUT = 0.1; // of the accuracies after them: a zoomed axis may leave out so many at its lower end
const FEWEST_SHARE = 0.02; // of a zoomed axis: what differs by less is to look alike
const MOST_DOTS = 24; // of a line; more run into one another

function makeChart(chart, view) {
  const svg = draw("svg", { role: "img", tabindex: 0, height: CHART_HEIGHT });
  const box = make("div", { class: "plot" }, svg);
  const state = keep(`chart ${chart.id}`, { width: 0, at: null });
  Object.assign(state, { plan: null, cursor: draw("g", { class: "cursor" }) });
  const below = make("p", { class: "below", hidden: true });

  function update() {
    if (!state.width) return;
    const plan = planChart(chart, view, state.width);
    state.plan = plan;
    state.cursor.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${state.width} ${CHART_HEIGHT}`);
    svg.setAttribute("aria-label", describeChart(chart, plan, view));
    svg.replaceChildren(...drawAxes(plan, state.width, view, chart),
      drawInside(plan.lines.flatMap((line) => drawLine(line, plan)), state.width), state.cursor);
    below.hidden = !plan.below.length;
    below.textContent = `Below this axis: ${plan.below.join(", ")}.`;
  }

  const legend = chart.legend && chart.series.length > 1 ? makeLegend(chart.series, chart.hidden, update) : null;
  const alone = chart.legend && chart.series.length === 1 ? chart.series[0].name : "";
  const button = chart.canLog && !chart.isPanel ? makeScaleButton(chart.scale, update) : null;
  const caption = makeCaption("figcaption", { ...chart, note: chart.note || alone }, button);
  const node = make("figure", { class: "chart", id: `chart-${chart.id}` }, caption, legend, below, box);
  followPointer(svg, chart, view, state);
  update();
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width && width !== state.width) requestAnimationFrame(() => { state.width = width; update(); });
  }).observe(box);
  return { node, update };
}

// The title of a chart, or of a row of charts, with its button and how to read it.
function makeCaption(element, { title, note, isPanel }, button) {
  return make(element, { class: "caption" }, make(isPanel ? "h4" : "h3", {}, title), button,
    note ? make("p", {}, note) : null);
}

function makeScaleButton(scale, onChange) {
  const button = make("button", { type: "button", class: "quiet", "aria-pressed": String(scale.log), click: () => {
    scale.log = !scale.log;
    button.setAttribute("aria-pressed", String(scale.log));
    onChange();
  } }, "log scale");
  return button;
}

// Which points are shown, the scales that they fit, and the names of those that the scale leaves out below.
function planChart(chart, view, width) {
  const log = chart.scale.log && chart.peers.flat().some(({ points }) => points.some((point) => point.y > 0));
  const shown = (some) => some.filter(({ name }) => !chart.hidden.has(name)).map((series) => ({
    series,
    points: series.points.filter((point) => point[view.axis.key] !== undefined && (!log || point.y > 0)),
  }));
  const lines = shown(chart.series);
  const peers = view.range === "own" && chart.form === "percent" ? lines : chart.peers.flatMap(shown);
  const size = { from: BOTTOM, to: MARGIN.top };
  const across = { from: MARGIN.left, to: width - MARGIN.right, most: Math.max(2, width / 90) };
  const x = linearScale([0, view.reach[view.axis.key]], { ...across, whole: view.axis.key === DATA.axes[0].key });
  const y = scaleHeights(chart, view, peers, { log, size });
  const below = lines.filter(({ points }) => points.length && latePoints(points, view).every((point) => point.y < y.low));
  return { lines, x, y, log, below: below.map(({ series }) => series.name), across: (point) => x.place(point[view.axis.key]) };
}

function scaleHeights(chart, view, lines, { log, size }) {
  if (chart.form === "percent") return scaleShares(view, lines, size);
  const heights = lines.flatMap(({ points }) => points.flatMap(({ y, low, high }) => [y, low, high]))
    .concat(chart.mark).filter((value) => value !== undefined && (!log || value > 0));
  return log ? logScale(heights, size) : linearScale(heights, { ...size, floor: 0, tidy: true });
}

// Accuracies: from 0 to 100 %, or from where nearly all of them are once the first rounds are over.
function scaleShares(view, lines, size) {
  const limits = { ...size, floor: 0, ceiling: 1 };
  const heights = lines.flatMap(({ points }) => latePoints(points, view)).map(({ y }) => y).sort((a, b) => a - b);
  if (view.range === "full" || !heights.length) return linearScale([0, 1], limits);
  const high = extremes(lines.flatMap(({ points }) => points.map(({ y, high: top }) => top ?? y)))[1];
  const low = heights[Math.floor(LEFT_OUT * (heights.length - 1))];
  return linearScale([Math.max(0, Math.min(low, high - FEWEST_SHARE)), high], { ...limits, tidy: true });
}

// The points of a line after its first rounds; its last one is always among them.
function latePoints(points, { axis: { key } }) {
  return points.filter((point) => point[key] >= EARLY * points[points.length - 1][key]);
}

function drawAxes(plan, width, view, chart) {
  const right = width - MARGIN.right;
  const yText = chart.form === "percent" ? (value) => `${Number((100 * value).toFixed(1))} %` : number;
  const xText = (value) => (value >= 1e6 ? number(value) : Number(value.toPrecision(6)).toLocaleString("en"));
  const level = (name, value) =>
    draw("line", { class: name, x1: MARGIN.left, x2: right, y1: plan.y.place(value), y2: plan.y.place(value) });
  return [
    ...plan.y.ticks.map((value) => level("grid", value)),
    draw("g", { class: "ticks y" }, plan.y.ticks.map((value) =>
      draw("text", { x: MARGIN.left - 8, y: plan.y.place(value), dy: "0.32em" }, yText(value)))),
    draw("g", { class: "ticks x" }, plan.x.ticks.map((value) =>
      draw("text", { x: plan.x.place(value), y: BOTTOM + 15 }, xText(value)))),
    draw("line", { class: "axis", x1: MARGIN.left, x2: right, y1: BOTTOM, y2: BOTTOM }),
    draw("text", { class: "axis-label", x: right, y: CHART_HEIGHT - 4 }, view.axis.label),
    ...(chart.mark === undefined ? [] : [level("mark", chart.mark)]),
    ...(plan.y.low > 0 && !plan.log ? [
      draw("path", { class: "break", d: `M${MARGIN.left - 5} ${BOTTOM - 3}l10 -4m-10 8l10 -4` }),
      draw("text", { class: "axis-note", x: MARGIN.left, y: CHART_HEIGHT - 4 }, `axis starts at ${yText(plan.y.low)}, not at 0`),
    ] : []),
  ];
}

// What is drawn between the axes, cut off at their ends.
function drawInside(parts, width) {
  const [x, y, room] = [MARGIN.left - 5, MARGIN.top - 5, width - MARGIN.right - MARGIN.left + 10];
  const height = BOTTOM - y + 2;
  return draw("svg", { class: "inside", x, y, width: room, height, viewBox: `${x} ${y} ${room} ${height}` }, parts);
}

function drawLine({ series, points }, plan) {
  const { color, dash } = series.style;
  const height = (value) => plan.y.place(value).toFixed(1);
  const trace = (some, key) => some.map((point) => `${plan.across(point).toFixed(1)} ${height(point[key])}`).join("L");
  const banded = points.filter((point) => point.low !== undefined);
  const stroke = { style: `stroke:${color}`, "stroke-dasharray": dash };
  const line = (some, key) =>
    draw("path", { class: "line", "data-series": series.name, ...stroke, d: `M${trace(some, key)}` });
  const size = { class: "dot", r: points.length === 1 ? 4 : 2.2, style: `fill:${color}` };
  const dot = (point, key) => draw("circle", { ...size, cx: plan.across(point).toFixed(1), cy: height(point[key]) });
  const area = `M${trace(banded, "high")}L${trace([...banded].reverse(), "low")}Z`;
  const few = points.length <= MOST_DOTS;
  const shade = clamp(0.5 / plan.lines.length, 0.05, 0.16); // many bands that lie on one another stay light
  return [
    banded.length > 1 ? draw("path", { class: "band", style: `fill:${color};opacity:${shade}`, d: area }) : null,
    points.length ? line(points, "y") : null,
    series.edges && banded.length ? line(banded, "high") : null,
    ...(few ? points.map((point) => dot(point, "y")) : []),
    ...(few && series.edges ? banded.map((point) => dot(point, "high")) : []),
  ].filter(Boolean);
}

// A cursor that jumps to the nearest place where a line has a point, for a mouse, a finger or the arrow keys.
function followPointer(svg, chart, view, state) {
  function show(pixel, screenX, screenY) {
    const away = (point) => Math.abs(state.plan.across(point) - pixel);
    const near = state.plan.lines.filter(({ points }) => points.length).map(({ series, points }) =>
      ({ series, point: points.reduce((a, b) => (away(b) < away(a) ? b : a)) }));
    if (!near.length) return;
    const first = near.reduce((a, b) => (away(b.point) < away(a.point) ? b : a)).point;
    state.at = state.plan.across(first);
    const told = near.filter(({ point }) => Math.abs(state.plan.across(point) - state.at) < 5);
    state.cursor.replaceChildren(
      draw("line", { x1: state.at, x2: state.at, y1: MARGIN.top, y2: BOTTOM }),
      ...told.map(({ series, point }) => draw("circle", {
        cx: state.plan.across(point), cy: Math.min(BOTTOM, state.plan.y.place(point.y)), r: 4, style: `fill:${series.style.color}`,
      })));
    showTip([tellPlace(first), ...told.map(({ series, point }) => make("div", { class: "row" },
      makeSwatch(series.style), make("span", {}, series.name), make("b", {}, tellPoint(point, FORMS[chart.form]))))],
    screenX, screenY);
  }

  function leave() {
    hideTip();
    state.cursor.replaceChildren();
    state.at = null;
  }

  const follow = (event) => show(event.clientX - svg.getBoundingClientRect().left, event.clientX, event.clientY);
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const places = state.plan.lines.flatMap(({ points }) => points.map(state.plan.across));
    const next = step > 0 ? Math.min(...places.filter((place) => place > (state.at ?? 0) + 0.1))
      : Math.max(...places.filter((place) => place < (state.at ?? Infinity) - 0.1));
    const frame = svg.getBoundingClientRect();
    if (Number.isFinite(next)) show(next, frame.left + next, frame.top + MARGIN.top + 40);
  });
}

function tellPlace(point) {
  const others = DATA.axes.slice(1).filter(({ key }) => point[key] !== undefined);
  const parts = others.map(({ key, form, unit }) => FORMS[form](point[key] * unit));
  return make("div", { class: "place" }, [`after round ${point.round}`, ...parts].join(" · "));
}

function tellPoint({ y, low, high, std }, write) {
  if (std !== undefined) return tellSpread(y, std, write);
  if (low === undefined) return write(y);
  return y === low ? `${write(low)} to ${write(high)}` : `${write(y)} (${write(low)} to ${write(high)})`;
}

// What a person who does not see the chart should know of it.
function describeChart(chart, plan, view) {
  const ends = plan.lines.filter(({ points }) => points.length).map(({ series, points }) =>
    `${series.name} ends at ${tellPoint(points[points.length - 1], FORMS[chart.form])}`);
  return `${chart.title} against ${view.axis.label}. ${ends.join("; ") || "No line is shown"}.`;
}

// Names that show or hide their series, in one chart or in all.
function makeLegend(series, hidden, onChange) {
  const toggle = (name) => { if (!hidden.delete(name)) hidden.add(name); };
  const buttons = series.map(({ name, style }) => make("button", {
    type: "button", class: "key", "aria-pressed": String(!hidden.has(name)), "data-series": name,
    click: () => { toggle(name); refresh(); },
    dblclick: () => {
      for (const other of series) hidden.add(other.name);
      hidden.delete(name);
      refresh();
    },
  }, makeSwatch(style), name));
  function refresh() {
    for (const button of buttons) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.series)));
    onChange();
  }
  return make("div", { class: "legend", role: "group", "aria-label": "Lines shown" }, buttons);
}

function makeSwatch({ color, dash }) {
  return draw("svg", { class: "swatch", width: 22, height: 10, "aria-hidden": "true" },
    draw("line", { x1: 1, x2: 21, y1: 5, y2: 5, style: `stroke:${color}`, "stroke-dasharray": dash }));
}
