// Which curves there are: of one group its measures side by side, of several each measure with a line a group.

const DASHES = [null, "6 4", "9 3 2 3", "2 3", "9 3 2 3 2 3"];
const CLIENTS = ["client_accuracy_mean", "client_accuracy_min", "client_accuracy_max"];
const WEIGHTS = ["push_weight_min", "push_weight_min", "push_weight_max"];
const APART = "mean distance of the clients’ models z from the mean model x̄";
const RANGE = "smallest and largest w of all clients; 1 is even";
const NOT_YET = "nothing is recorded yet.";
const NO_CLIENTS = "the clients’ own models were not evaluated (eval.clients_every is 0).";
const ALL_ONE = "every client’s w was 1 in every round.";
const ALL_ZERO = "0 in every round: all clients had one and the same model.";

function styleOf(index) {
  return { color: `var(--c${index % 7})`, dash: DASHES[Math.floor(index / 7) % DASHES.length] };
}

// The points of a measure; `low` and `high` name measures that make its band, else it is ± the deviation over seeds.
function pointsOf(curves, measure, low, high) {
  const { round, mb, s, mean, std } = curves[measure];
  const edge = (name) => new Map(name ? curves[name].round.map((at, index) => [at, curves[name].mean[index]]) : []);
  const [bottom, top] = [edge(low), edge(high)];
  return round.map((at, index) => {
    const point = { round: at, mb: mb[index], s: s[index], y: mean[index] };
    if (bottom.has(at) && top.has(at)) return { ...point, low: bottom.get(at), high: top.get(at) };
    if (low || std === null) return point;
    return { ...point, std: std[index], low: mean[index] - std[index], high: mean[index] + std[index] };
  });
}

// The charts of one group: lines are measures.
function chartsOfOne({ curves }) {
  const line = (name, place, ...measures) => ({ name, style: styleOf(place), points: pointsOf(curves, ...measures) });
  const range = { ...line("smallest to largest w", 0, ...WEIGHTS), edges: true };
  return [
    {
      id: "accuracy", title: "Test accuracy", form: "percent",
      series: [line("mean model x̄", 0, "test_accuracy"), line("clients’ own models, mean and range", 1, ...CLIENTS)],
    },
    {
      id: "loss", title: "Loss", form: "number", canLog: true,
      series: [line("test, mean model x̄", 0, "test_loss"), line("training, mean over clients", 1, "train_loss")],
    },
    {
      id: "consensus", title: "Distance from consensus", note: APART, form: "number", log: true, canLog: true,
      flat: { value: 0, words: ALL_ZERO }, series: [line("consensus distance", 0, "consensus_distance")],
    },
    {
      id: "weights", title: "Push weights", note: RANGE, form: "number", mark: 1,
      flat: { value: 1, words: ALL_ONE }, series: [range],
    },
  ];
}

// The charts of several groups: lines are groups.
function chartsOfMany(groups) {
  const lines = (measures, more = {}) => groups.map(({ label, curves }, place) =>
    ({ name: label, style: styleOf(place), points: pointsOf(curves, ...measures), ...more }));
  const note = groups.some(({ seeds }) => seeds > 1) ? "mean over seeds, band ± one standard deviation" : "";
  const [accuracy, loss] = [{ note, form: "percent" }, { note, form: "number", canLog: true }];
  return [
    { id: "accuracy", title: "Test accuracy of the mean model x̄", ...accuracy, series: lines(["test_accuracy"]) },
    {
      id: "clients", title: "Accuracy of the clients’ own models", note: "mean, band from the worst to the best client",
      form: "percent", series: lines(CLIENTS), absent: NO_CLIENTS,
    },
    { id: "test-loss", title: "Test loss of the mean model x̄", ...loss, series: lines(["test_loss"]) },
    { id: "train-loss", title: "Training loss, mean over clients", ...loss, series: lines(["train_loss"]) },
    {
      id: "consensus", title: "Distance from consensus", ...loss, note: APART, log: true,
      flat: { value: 0, words: ALL_ZERO }, series: lines(["consensus_distance"]),
    },
    {
      id: "weights", title: "Push weights", note: RANGE, form: "number", mark: 1,
      flat: { value: 1, words: ALL_ONE }, series: lines(WEIGHTS, { edges: true }),
    },
  ];
}

// Why a chart would show nothing; null where it does show something.
function whyAbsent({ series, absent, flat }) {
  const points = series.flatMap((one) => one.points);
  if (!points.length) return absent ?? NOT_YET;
  return flat && points.every(({ y, high }) => y === flat.value && (high ?? y) === flat.value) ? flat.words : null;
}

function makeCurves(groups) {
  const several = groups.length > 1;
  const planned = several ? chartsOfMany(groups) : chartsOfOne(groups[0]);
  const every = planned.flatMap(({ series }) => series.flatMap(({ points }) => points));
  const reach = (axis) => extremes(every.map((point) => point[axis] ?? 0), [0, 1])[1] || 1;
  const view = { axis: "round", reach: { round: reach("round"), mb: reach("mb"), s: reach("s") } };
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
  const axes = [["round", "rounds"], ["mb", "megabytes"], ["s", "seconds"]];
  const choice = makeSwitch("Draw against", axes, "round", (axis) => { view.axis = axis; update(); });
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
