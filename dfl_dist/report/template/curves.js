// The charts of the page: of one group its curves side by side; of several each curve with a line per group, one set of
// axes per partition.

const DASHES = [null, "6 4", "9 3 2 3", "2 3", "9 3 2 3 2 3"];

function styleOf(index) {
  return { color: `var(--c${index % 7})`, dash: DASHES[Math.floor(index / 7) % DASHES.length] };
}

// The points of a metric; `low` and `high` name metrics that make its band, else it is ± the deviation over seeds.
function pointsOf(curves, [metric, low, high]) {
  const { mean, std, ...places } = curves[metric];
  const edge = (name) => new Map(name ? curves[name].round.map((at, index) => [at, curves[name].mean[index]]) : []);
  const [bottom, top] = [edge(low), edge(high)];
  return places.round.map((at, index) => {
    const point = { y: mean[index] };
    for (const { key } of DATA.axes) point[key] = places[key][index];
    if (bottom.has(at) && top.has(at)) return { ...point, low: bottom.get(at), high: top.get(at) };
    if (low || std === null) return point;
    return { ...point, std: std[index], low: mean[index] - std[index], high: mean[index] + std[index] };
  });
}

// The charts of a metric: for one group its curves in one, for several one per partition with a line per group.
function panelsOf(chart, groups, grid) {
  if (groups.length === 1) {
    const series = chart.lines.map((line, place) => makeSeries(line.name, styleOf(place), groups[0], line));
    return [{ ...chart, series }];
  }
  const [line] = chart.lines;
  const several = grid.columns.length > 1;
  return grid.columns.map((column, place) => ({
    ...chart,
    data_set: column.data_set,
    ...(several ? { id: `${chart.id}-${place}`, title: tellColumn(column, grid), note: "", isPanel: true } : {}),
    series: groups.filter((group) => group.column === place)
      .map((group) => makeSeries(group.name, styleOf(group.row), group, line)),
  }));
}

function makeSeries(name, style, { curves }, { metrics, edges }) {
  return { name, style, points: pointsOf(curves, metrics), edges };
}

// Why a chart would show nothing; null where it does show something.
function whyAbsent({ series, absent, uneventful: [value, words] = [] }) {
  const points = series.flatMap((one) => one.points);
  if (!points.length) return absent;
  return words && points.every(({ y, high }) => y === value && (high ?? y) === value) ? words : null;
}

function makeCurves(groups, grid) {
  const several = groups.length > 1;
  const rows = DATA.charts.map((chart) => ({ chart, panels: panelsOf(chart, groups, grid) }));
  const every = rows.flatMap(({ panels }) => panels.flatMap(({ series }) => series.flatMap(({ points }) => points)));
  const reach = ({ key }) => extremes(every.map((point) => point[key] ?? 0), [0, 1])[1] || 1;
  const reaches = Object.fromEntries(DATA.axes.map((axis) => [axis.key, reach(axis)]));
  const view = Object.assign(keep("view", { axis: DATA.axes[0], range: "shared" }), { reach: reaches });
  const shared = several ? keep("hidden groups", new Set()) : null;
  const charts = [];
  const drawn = rows.flatMap((row) => drawRow(row, view, shared, charts));
  const update = () => { for (const chart of charts) chart.update(); };
  const names = grid.rows.map(({ label }, place) => ({ name: label, style: styleOf(place) }));
  const hint = "A click on a name hides or shows it, a double click shows it alone.";
  const charted = several && grid.columns.length > 1 ? "rows" : "charts";
  return makeSection("curves", "Curves",
    makeControls(view, grid.columns.length > 1, update),
    ...(several ? [makeLegend(names, shared, update), make("p", { class: "hint" }, hint)] : []),
    make("div", { class: charted }, drawn),
    make("p", { class: "hint" }, tellCurves(groups)));
}

// What all charts are drawn against, and how far the axis of accuracies goes.
function makeControls(view, severalPanels, update) {
  const axes = DATA.axes.map(({ key, choice }) => [key, choice]);
  const across = makeSwitch("Draw against", axes, view.axis.key, (chosen) => {
    view.axis = DATA.axes.find(({ key }) => key === chosen);
    update();
  });
  const ranges = [["shared", "zoomed"], ...(severalPanels ? [["own", "zoomed each"]] : []), ["full", "0 to 100 %"]];
  const range = makeSwitch("Accuracy axis", ranges, view.range, (chosen) => {
    view.range = chosen;
    update();
  });
  return make("div", { class: "controls" },
    make("span", { class: "label" }, "Draw against"), across,
    make("span", { class: "label" }, "Accuracy axis"), range);
}

// A metric's charts; `charts` gets those that are there to be updated.
function drawRow({ chart, panels }, view, shared, charts) {
  const reasons = panels.map(whyAbsent);
  if (reasons.every(Boolean)) return make("p", { class: "absent" }, make("b", {}, `${chart.title}: `), reasons[0]);
  const scale = keep(`scale ${chart.id}`, { log: chart.log ?? false });
  const added = panels.map((panel, place) => {
    if (reasons[place]) return tellAbsent(panel, reasons[place]);
    const peers = panels.filter(({ data_set: name }) => name === panel.data_set).map(({ series }) => series);
    const series = shared ? panel.series : panel.series.filter(({ points }) => points.length);
    const hidden = shared ?? keep(`hidden in ${panel.id}`, new Set());
    const made = makeChart({ ...panel, series, peers, scale, hidden, legend: !shared }, view);
    charts.push(made);
    return made.node;
  });
  if (!panels[0].isPanel) return added;
  const refresh = () => { for (const one of charts) one.update(); };
  return make("div", { class: "row", id: `row-${chart.id}` },
    makeCaption("div", chart, chart.canLog ? makeScaleButton(scale, refresh) : null),
    make("div", { class: "panels" }, added));
}

function tellAbsent({ id, title }, why) {
  return make("figure", { class: "chart", id: `chart-${id}` },
    make("figcaption", {}, make("h4", {}, title)), make("p", { class: "absent" }, why));
}

// What a reader should know of all the curves.
function tellCurves(groups) {
  const thinned = groups.some(({ curves }) => Object.values(curves).some(({ round, of }) => round.length < of));
  const repeated = groups.some(({ seeds }) => seeds > 1);
  const parts = ["Seconds are those of the slowest rank, without evaluation and checkpoints."];
  if (thinned) parts.push("Long curves show evenly chosen rounds, not all.");
  if (repeated) parts.push("A curve over seeds has the rounds that all of its seeds have.");
  if (repeated && !groups.every(({ finished }) => finished)) {
    parts.push("Seeds that have not ended are not in it where others have.");
  }
  return parts.join(" ");
}
