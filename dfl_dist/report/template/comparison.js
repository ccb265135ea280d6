// What comes first where groups are compared: methods × partitions, and all numbers of every group.

// The layout of a paper's tables: a row per method, a column per partition, data sets above their partitions.
function makeGrid({ columns, rows, caption }) {
  const sets = [...new Set(columns.map(({ data_set }) => data_set))];
  const of = (name) => columns.filter(({ data_set }) => data_set === name).length;
  const last = columns.map(({ data_set }, place) => data_set !== columns[place + 1]?.data_set);
  const top = make("tr", {}, make("th", { rowspan: 2, scope: "col", class: "name" }, "method"),
    sets.map((name) => make("th", { colspan: of(name), scope: "colgroup", class: "set" }, name)));
  const heads = make("tr", {}, columns.map(({ partition }) => make("th", { scope: "col" }, partition)));
  const lines = rows.map(({ label, cells }, row) => make("tr", {}, makeName(label, styleOf(row)),
    cells.map((cell, place) => makeGridCell(cell, last[place]))));
  return [
    makeTableBox("Accuracy by method and partition", "grid-table", make("thead", {}, top, heads), make("tbody", {}, lines)),
    make("p", { class: "hint" }, caption),
  ];
}

function makeGridCell(cell, last) {
  const place = cell && { 1: "best", 2: "second" }[cell.place];
  const shape = [place, last ? "last" : null].filter(Boolean).join(" ") || null;
  if (!cell) return make("td", { class: shape }, NOTHING);
  if (cell.mean === null) return make("td", { class: shape }, cell.diverged ? "diverged" : `${NOTHING} †`);
  const counted = cell.missing ? ` (${cell.seeds - cell.missing}/${cell.seeds})` : "";
  return make("td", { class: shape }, make("b", {}, (100 * cell.mean).toFixed(2)),
    cell.std === null ? "" : make("span", { class: "detail" }, ` ± ${(100 * cell.std).toFixed(2)}`),
    counted + (cell.complete ? "" : " †"));
}

// The first cell of a row, which stays in sight when a narrow screen scrolls the others.
function makeName(label, style) {
  return make("th", { scope: "row", class: "name" }, make("div", {}, makeSwatch(style), make("span", {}, label)));
}

function makeTableBox(label, name, ...parts) {
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    make("table", { class: `compare ${name}` }, parts.flat()));
}

// All numbers: a table that is sorted by its columns, within each partition.

function makeComparison(groups, columns, grid) {
  const order = keep("order", { column: null, down: true }); // its name: on a live page others come before it
  const varied = ["seeds", "rounds"].filter((key) => new Set(groups.map((group) => group[key])).size > 1);
  const [first, ...others] = columns;
  const names = ["method", first, ...varied, ...others];
  const keys = [({ name }) => name, scoreKey(0), ...varied.map((key) => (group) => parseInt(group[key], 10)),
    ...others.map((_, place) => scoreKey(place + 1))];
  const heads = names.map((label, place) => makeHead(label, place, order, refresh));
  const scale = linearScale(groups.flatMap(({ scores }) => spreadEnds(scores[0])), { from: 8, to: 82 });
  const width = names.length + 1;
  const parts = grid.columns.map((column, place) => ({
    title: grid.columns.length > 1 ? tellColumn(column, grid) : null,
    members: groups.filter((group) => group.column === place),
    body: make("tbody"),
  }));

  function refresh() {
    const chosen = names.indexOf(order.column);
    heads.forEach((head, place) => {
      head.setAttribute("aria-sort", chosen !== place ? "none" : order.down ? "descending" : "ascending");
    });
    for (const { title, members, body } of parts) {
      const sorted = [...members].sort((a, b) => a.row - b.row);
      const key = keys[chosen];
      if (key) sorted.sort((a, b) => compareBy(key(a), key(b), order.down));
      const above = title && make("tr", { class: "part" },
        make("th", { colspan: width, scope: "rowgroup", class: "name" }, make("span", {}, title)));
      body.replaceChildren(...[above, ...sorted.map((group) => makeRow(group, varied, scale))].filter(Boolean));
    }
  }

  refresh();
  const drawn = make("th", { scope: "col" }, make("span", { class: "hidden" }, `${first}, drawn`));
  const head = make("thead", {}, make("tr", {}, heads.slice(0, 2), drawn, heads.slice(2)));
  const box = makeTableBox("All numbers of the groups", "numbers", head, parts.map(({ body }) => body));
  return [box, make("p", { class: "hint" }, tellComparison(groups, varied))];
}

// A partition by name, after its data set where there are several.
function tellColumn({ data_set, partition }, { columns }) {
  return columns.every((other) => other.data_set === data_set) ? partition : `${data_set}, ${partition}`;
}

function tellComparison(groups, varied) {
  const left = groups.flatMap((group) => group.left_out);
  const [{ seeds, rounds }] = groups;
  const each = [varied.includes("seeds") ? null : count(seeds, "seed"),
    varied.includes("rounds") ? null : `${rounds} rounds`].filter(Boolean);
  const parts = each.length ? [`Every row: ${each.join(", ")}.`] : [];
  parts.push("Accuracies and test loss are of the mean model x̄. A click on a column’s name sorts by it.");
  if (groups.some((group) => group.seeds > 1)) {
    parts.push("Numbers are means over seeds, accuracies with ± the sample standard deviation; small dots are seeds.");
  }
  if (groups.some(({ scores }) => scores.some(({ missing, mean }) => missing && mean !== null))) {
    parts.push("(2/3): two of three seeds have the number, and it is of these.");
  }
  if (!groups.every(({ finished }) => finished)) parts.push("† not all runs are finished.");
  if (left.length) parts.push(`Left out, with the settings and the seed of another run: ${left.join(", ")}.`);
  return parts.join(" ");
}

function makeHead(label, place, order, refresh) {
  return make("th", { scope: "col", class: place ? null : "name" }, make("button", { type: "button", "data-column": place, click: () => {
    order.down = order.column === label ? !order.down : place !== 0;
    order.column = label;
    refresh();
  } }, label));
}

function scoreKey(place) {
  return ({ scores }) => scores[place].mean;
}

// What is not known comes last, whichever way the column is sorted.
function compareBy(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return down ? -order : order;
}

function makeRow({ row, name, finished, scores, ...group }, varied, scale) {
  const style = styleOf(row);
  const [first, ...others] = scores.map(({ text }) => make("td", {}, text));
  return make("tr", {},
    makeName(name + (finished ? "" : " †"), style), first,
    make("td", { class: "whisker" }, drawWhisker(scores[0], scale, style)),
    varied.map((key) => make("td", {}, String(group[key]))), others);
}

function spreadEnds({ mean, std, values }) {
  return mean === null ? [] : [mean - (std ?? 0), mean + (std ?? 0), ...values];
}

// The first column as a dot with its deviation, and a small dot for each seed, all groups on one scale.
function drawWhisker({ mean, std, values }, scale, { color }) {
  const svg = draw("svg", { width: 90, height: 20, "aria-hidden": "true", style: `color:${color}` });
  if (mean === null) return svg;
  const [low, high] = [scale.place(mean - (std ?? 0)), scale.place(mean + (std ?? 0))];
  const seeds = values.length > 1 ? values : [];
  svg.append(
    draw("line", { class: "base", x1: 4, x2: 86, y1: 10, y2: 10 }),
    draw("line", { class: "reach", x1: low, x2: high, y1: 10, y2: 10 }),
    draw("circle", { class: "mean", cx: scale.place(mean), cy: 10, r: 4.5 }),
    ...seeds.map((value) => draw("circle", { class: "seed", cx: scale.place(value), cy: 10, r: 2 })));
  return svg;
}
