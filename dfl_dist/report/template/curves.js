// The charts of the page: of one group its curves side by side, of several each curve with one line per group.

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

// A chart with its lines: those of its curves for one group, of its one curve for each of several groups.
function withSeries(chart, groups) {
  const pairs = groups.length > 1 ? groups.map((group) => [group.label, group, chart.lines[0]])
    : chart.lines.map((line) => [line.name, groups[0], line]);
  const series = pairs.map(([name, { curves }, { metrics, edges }], place) =>
    ({ name, style: styleOf(place), points: pointsOf(curves, metrics), edges }));
  return { ...chart, series };
}

// Why a chart would show nothing; null where it does show something.
function whyAbsent({ series, absent, uneventful: [value, words] = [] }) {
  const points = series.flatMap((one) => one.points);
  if (!points.length) return absent;
  return words && points.every(({ y, high }) => y === value && (high ?? y) === value) ? words : null;
}

function makeCurves(groups) {
  const several = groups.length > 1;
  const planned = DATA.charts.map((chart) => withSeries(chart, groups));
  const every = planned.flatMap(({ series }) => series.flatMap(({ points }) => points));
  const reach = ({ key }) => extremes(every.map((point) => point[key] ?? 0), [0, 1])[1] || 1;
  const view = { axis: DATA.axes[0], reach: Object.fromEntries(DATA.axes.map((axis) => [axis.key, reach(axis)])) };
  const shared = new Set();
  const charts = [];
  const drawn = planned.map((chart) => {
    const why = whyAbsent(chart);
    if (why) return make("p", { class: "absent" }, make("b", {}, `${chart.title}: `), why);
    const series = several ? chart.series : chart.series.filter(({ points }) => points.length);
    const made = makeChart({ ...chart, series, hidden: several ? shared : new Set(), legend: !several }, view);
    charts.push(made);
    return made.node;
  });
  const update = () => { for (const chart of charts) chart.update(); };
  const axes = DATA.axes.map(({ key, choice }) => [key, choice]);
  const choice = makeSwitch("Draw against", axes, view.axis.key, (chosen) => {
    view.axis = DATA.axes.find(({ key }) => key === chosen);
    update();
  });
  const names = groups.map(({ label }, place) => ({ name: label, style: styleOf(place) }));
  const hint = "A click on a name hides or shows it, a double click shows it alone.";
  return makeSection("curves", "Curves",
    make("div", { class: "controls" }, make("span", { class: "label" }, "Draw against"), choice),
    ...(several ? [makeLegend(names, shared, update), make("p", { class: "hint" }, hint)] : []),
    make("div", { class: "charts" }, drawn),
    make("p", { class: "hint" }, tellCurves(groups)));
}

// What a reader should know of all the curves.
function tellCurves(groups) {
  const thinned = groups.some(({ curves }) => Object.values(curves).some(({ round, of }) => round.length < of));
  const repeated = groups.some(({ seeds }) => seeds > 1);
  const parts = ["Seconds are those of the slowest rank, without evaluation and checkpoints."];
  if (thinned) parts.push("Long curves show evenly chosen rounds, not all.");
  if (repeated) parts.push("A curve over seeds has the rounds that all of its seeds have.");
  return parts.join(" ");
}
