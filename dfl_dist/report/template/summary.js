// What comes first: the numbers of a run, or the table that compares groups.

function makeTiles({ tiles }) {
  const describe = (write, [text, ...values]) => text.replace(/\{\}/g, () => write(values.shift()));
  return make("dl", { class: "facts" }, tiles.map(({ label, form, value, detail }) => make("div", {},
    make("dt", {}, label[0].toUpperCase() + label.slice(1)),
    make("dd", { class: "value" }, FORMS[form](value)),
    make("dd", { class: "detail" }, describe(FORMS[form], detail)))));
}

// Pairs of a name and some words.
function makeList(pairs) {
  const lines = pairs.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]);
  return make("dl", { class: "about" }, lines);
}

function makeRunSummary(run) {
  const hint = "Accuracy and test loss are of the mean model x̄. Rounds are counted from 1; the files count from 0.";
  return [
    make("p", { class: `badge ${run.state.tone}` }, run.state.text),
    makeTiles(run),
    make("p", { class: "hint" }, hint),
    makeList(run.about),
  ];
}

// The table that compares groups.

function makeComparison(groups, columns) {
  const order = { column: null, down: true };
  const body = make("tbody");
  const named = columns.map(({ label, form }) => (form === "percent" ? `${label}, %` : label));
  const names = ["group", "seeds", "rounds", ...named];
  const heads = names.map((label, place) => makeHead(label, place, order, refresh));
  const scale = linearScale(groups.flatMap(({ scores }) => spreadEnds(scores[0])), { from: 8, to: 102 });

  function refresh() {
    const sorted = groups.map((group, place) => ({ group, place }));
    if (order.column !== null) {
      const key = ({ group }) => sortKey(group, order.column);
      sorted.sort((a, b) => compareBy(key(a), key(b), order.down));
    }
    heads.forEach((head, place) => {
      head.setAttribute("aria-sort", order.column !== place ? "none" : order.down ? "descending" : "ascending");
    });
    body.replaceChildren(...sorted.map(({ group, place }) => makeRow(group, styleOf(place), columns, scale)));
  }

  refresh();
  const drawn = make("th", { scope: "col" }, make("span", { class: "hidden" }, `${columns[0].label}, drawn`));
  const head = make("thead", {}, make("tr", {}, heads.slice(0, 3), drawn, heads.slice(3)));
  const box = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Comparison of the groups" },
    make("table", { class: "compare" }, head, body));
  return [box, make("p", { class: "hint" }, tellComparison(groups))];
}

function tellComparison(groups) {
  const left = groups.flatMap((group) => group.left_out);
  const parts = ["Accuracies and test loss are of the mean model x̄. A click on a column’s name sorts by it."];
  if (groups.some(({ seeds }) => seeds > 1)) {
    parts.push("Numbers are means ± sample standard deviation over seeds; small dots are seeds.");
  }
  if (groups.some(({ scores }) => scores.some(({ missing }) => missing))) {
    parts.push("(2/3): two of three seeds have the number, and it is of these.");
  }
  if (!groups.every(({ finished }) => finished)) parts.push("† not all runs have done all their rounds.");
  if (left.length) parts.push(`Left out, with the settings and the seed of another run: ${left.join(", ")}.`);
  return parts.join(" ");
}

function makeHead(label, place, order, refresh) {
  return make("th", { scope: "col" }, make("button", { type: "button", "data-column": place, click: () => {
    order.down = order.column === place ? !order.down : place !== 0;
    order.column = place;
    refresh();
  } }, label));
}

function sortKey({ label, seeds, rounds, scores }, column) {
  return [label, seeds, parseInt(rounds, 10), ...scores.map(({ mean }) => mean)][column];
}

// What is not known comes last, whichever way the column is sorted.
function compareBy(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return down ? -order : order;
}

function makeRow({ label, finished, seeds, rounds, scores }, style, columns, scale) {
  const tell = ({ mean, std, missing }, write) => {
    if (mean === null) return NOTHING;
    const text = std === null ? write(mean) : tellSpread(mean, std, write);
    return text.replace(" %", "") + (missing ? ` (${seeds - missing}/${seeds})` : "");
  };
  return make("tr", {},
    make("th", { scope: "row" }, make("div", {}, makeSwatch(style), label + (finished ? "" : " †"))),
    make("td", {}, String(seeds)), make("td", {}, rounds),
    make("td", { class: "whisker" }, drawWhisker(scores[0], scale, style)),
    columns.map(({ form }, place) => make("td", {}, tell(scores[place], FORMS[form]))));
}

function spreadEnds({ mean, std, values }) {
  return mean === null ? [] : [mean - (std ?? 0), mean + (std ?? 0), ...values];
}

// The first column as a dot with its deviation, and a small dot for each seed, all groups on one scale.
function drawWhisker({ mean, std, values }, scale, { color }) {
  const svg = draw("svg", { width: 110, height: 20, "aria-hidden": "true", style: `color:${color}` });
  if (mean === null) return svg;
  const [low, high] = [scale.place(mean - (std ?? 0)), scale.place(mean + (std ?? 0))];
  const seeds = values.length > 1 ? values : [];
  svg.append(
    draw("line", { class: "base", x1: 4, x2: 106, y1: 10, y2: 10 }),
    draw("line", { class: "reach", x1: low, x2: high, y1: 10, y2: 10 }),
    draw("circle", { class: "mean", cx: scale.place(mean), cy: 10, r: 4.5 }),
    ...seeds.map((value) => draw("circle", { class: "seed", cx: scale.place(value), cy: 10, r: 2 })));
  return svg;
}
