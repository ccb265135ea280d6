// A line chart as wide as its place: axes, bands, a scale that may be logarithmic, a cursor that tells the values.
//
// A chart: id, title, note, form (how values are written), log, canLog, mark (a value to compare with), series, hidden
// (names of series that are not shown), legend. A series: name, style, points with a place on each axis, y and perhaps
// a band from low to high, which is drawn with `edges` too; std where the band is a deviation.
// `view` is shared by charts: the axis they are drawn against, and how far each axis goes.

const CHART_HEIGHT = 230;
const MARGIN = { top: 12, right: 14, bottom: 36, left: 52 };
const BOTTOM = CHART_HEIGHT - MARGIN.bottom;
const MOST_DOTS = 24; // of a line; more run into one another

function makeChart(chart, view) {
  const svg = draw("svg", { role: "img", tabindex: 0, height: CHART_HEIGHT });
  const box = make("div", { class: "plot" }, svg);
  const state = { width: 0, log: chart.log ?? false, plan: null, at: null, cursor: draw("g", { class: "cursor" }) };

  function update() {
    if (!state.width) return;
    const plan = planChart(chart, view, state);
    state.plan = plan;
    state.cursor.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${state.width} ${CHART_HEIGHT}`);
    svg.setAttribute("aria-label", describeChart(chart, plan, view));
    svg.replaceChildren(
      ...drawAxes(plan, state.width, view, chart), ...plan.lines.flatMap((line) => drawLine(line, plan)), state.cursor);
  }

  const scale = make("button", { type: "button", class: "quiet", "aria-pressed": String(state.log), click: () => {
    state.log = !state.log;
    scale.setAttribute("aria-pressed", String(state.log));
    update();
  } }, "log scale");
  const legend = chart.legend && chart.series.length > 1 ? makeLegend(chart.series, chart.hidden, update) : null;
  const alone = chart.legend && chart.series.length === 1 ? chart.series[0].name : "";
  const note = chart.note || alone ? make("p", {}, chart.note || alone) : null;
  const caption = make("figcaption", {}, make("h3", {}, chart.title), chart.canLog ? scale : null, note);
  const node = make("figure", { class: "chart", id: `chart-${chart.id}` }, caption, legend, box);
  followPointer(svg, chart, view, state);
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width && width !== state.width) requestAnimationFrame(() => { state.width = width; update(); });
  }).observe(box);
  return { node, update };
}

// Which points are shown, and the scales that they fit.
function planChart(chart, view, { width, log: wanted }) {
  const log = wanted && chart.series.some(({ points }) => points.some((point) => point.y > 0));
  const lines = chart.series.filter(({ name }) => !chart.hidden.has(name)).map((series) => ({
    series,
    points: series.points.filter((point) => point[view.axis.key] !== undefined && (!log || point.y > 0)),
  }));
  const heights = lines.flatMap(({ points }) => points.flatMap(({ y, low, high }) => [y, low, high]))
    .concat(chart.mark).filter((value) => value !== undefined && (!log || value > 0));
  const size = { from: BOTTOM, to: MARGIN.top };
  const across = { from: MARGIN.left, to: width - MARGIN.right, most: Math.max(2, width / 90) };
  const x = linearScale([0, view.reach[view.axis.key]], { ...across, whole: view.axis === DATA.axes[0] });
  const y = log ? logScale(heights, size)
    : linearScale(heights, { ...size, floor: 0, ceiling: chart.form === "percent" ? 1 : Infinity, tidy: true });
  return { lines, x, y, across: (point) => x.place(point[view.axis.key]) };
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
  ];
}

function drawLine({ series, points }, plan) {
  const { color, dash } = series.style;
  const height = (value) => plan.y.place(clamp(value, plan.y.low, plan.y.high)).toFixed(1);
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
        cx: state.plan.across(point), cy: state.plan.y.place(point.y), r: 4, style: `fill:${series.style.color}`,
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
