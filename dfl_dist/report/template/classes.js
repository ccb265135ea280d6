// Who holds which classes: one column per client, one row per class, the darker the more; above it each client's total.

const LEVELS = 12; // of colour: one path each, however many cells there are
const BARS = 46; // height of the bars
const TOP = BARS + 8;

function makeClasses(run) {
  if (run.classes === null) {
    const words = "This run has not written down who holds which classes (classes.json is missing or damaged).";
    return make("p", { class: "absent" }, words);
  }
  const table = DATA.classes[run.classes];
  const some = table.clients.length < table.of
    ? ` Shown are ${whole(table.clients.length)} evenly chosen clients of ${whole(table.of)}.` : "";
  const box = { class: "scroll", tabindex: 0, role: "region", "aria-label": "Classes by client" };
  return make("div", {},
    make("p", {}, tellClasses(table)),
    make("div", box, drawClasses(table)),
    make("p", { class: "hint" }, `A column is a client, a row a class; bars are all samples of a client.${some}`));
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.ceil((sorted.length - 1) / 2)]) / 2;
}

function tellClasses({ names, counts }) {
  const range = (values) => {
    const [low, high] = extremes(values, [0, 0]);
    return low === high ? "" : ` (${whole(low)} to ${whole(high)})`;
  };
  const held = counts.map((row) => row.filter((value) => value > 0).length);
  const sizes = counts.map(sum);
  const classes = `${number(median(held))}${range(held)} of ${count(names.length, "class", "classes")}`;
  return `The median client holds ${classes} and ${whole(median(sizes))}${range(sizes)} samples.`;
}

// Cells as large as the window and readable names allow.
function measureClasses({ names, clients }) {
  const left = Math.max(60, 16 + 7 * Math.min(14, Math.max(...names.map((name) => name.length))));
  const room = Math.min(1184, document.documentElement.clientWidth - 32) - left - 10;
  const width = clamp(room / clients.length, 8, 64);
  const height = clamp(460 / names.length, 8, 26);
  return {
    left, width, height, right: left + width * clients.length, bottom: TOP + height * names.length,
    x: (column) => left + column * width, y: (place) => TOP + place * height,
  };
}

function drawClasses(table) {
  const { names, clients, counts } = table;
  const cell = measureClasses(table);
  const size = { width: cell.right + 8, height: cell.bottom + 24 };
  const ground = { x: cell.left, y: TOP, width: cell.right - cell.left - 1, height: cell.bottom - TOP - 1 };
  const svg = draw("svg", { class: "classes", ...size, role: "img", "aria-label": tellClasses(table) },
    draw("rect", { class: "ground", ...ground }),
    drawHeat(counts, cell), drawSizes(counts.map(sum), cell), drawClassNames(names, clients, cell));
  const tell = (event) => {
    const frame = svg.getBoundingClientRect();
    const column = Math.floor((event.clientX - frame.left - cell.left) / cell.width);
    const place = Math.floor((event.clientY - frame.top - TOP) / cell.height);
    if (column in clients && place in names) showTip(tellCell(table, column, place), event.clientX, event.clientY);
    else hideTip();
  };
  svg.addEventListener("pointermove", tell);
  svg.addEventListener("pointerdown", tell);
  svg.addEventListener("pointerleave", hideTip);
  return svg;
}

// The cells, and their numbers where there is room for them.
function drawHeat(counts, cell) {
  const most = Math.max(1, extremes(counts.flat(), [0, 1])[1]);
  const levels = Array.from({ length: LEVELS }, () => []);
  const written = [];
  const room = cell.width >= 26 && cell.height >= 16;
  counts.forEach((row, column) => row.forEach((value, place) => {
    if (value === 0) return;
    const level = Math.ceil(Math.sqrt(value / most) * LEVELS) - 1;
    const [x, y] = [cell.x(column).toFixed(2), cell.y(place).toFixed(2)];
    levels[level].push(`M${x} ${y}h${cell.width - 1}v${cell.height - 1}h${1 - cell.width}z`);
    if (!room) return;
    const middle = { x: cell.x(column + 0.5), y: cell.y(place + 0.5), dy: "0.34em" };
    written.push(draw("text", { class: level > LEVELS / 2 ? "count strong" : "count", ...middle }, String(value)));
  }));
  const paths = levels.map((parts, level) =>
    draw("path", { class: "heat", "fill-opacity": ((level + 1) / LEVELS).toFixed(2), d: parts.join("") }));
  return [...paths, ...written];
}

function drawSizes(sizes, cell) {
  const largest = Math.max(1, extremes(sizes, [0, 1])[1]);
  const bars = sizes.map((value, column) => {
    const height = (value / largest) * (BARS - 16);
    return draw("rect", { class: "bar", x: cell.x(column), width: cell.width - 1, y: BARS - height, height });
  });
  const numbers = cell.width < 34 ? [] : sizes.map((value, column) => draw("text", {
    class: "client", x: cell.x(column + 0.5), y: BARS - 5 - (value / largest) * (BARS - 16) }, whole(value)));
  return [...bars, ...numbers, draw("text", { class: "name", x: cell.left - 8, y: BARS - 3 }, "samples")];
}

function drawClassNames(names, clients, cell) {
  const everyName = nameEvery(cell.height, 12);
  const everyClient = nameEvery(cell.width, 22);
  const cut = (name) => (name.length > 14 ? `${name.slice(0, 13)}…` : name);
  return [
    ...names.map((name, place) => place % everyName ? null
      : draw("text", { class: "name", x: cell.left - 8, y: cell.y(place + 0.5), dy: "0.34em" }, cut(name))),
    ...clients.map((client, column) => column % everyClient ? null
      : draw("text", { class: "client", x: cell.x(column + 0.5), y: cell.bottom + 14 }, String(client))),
    draw("text", { class: "name", x: cell.left - 8, y: cell.bottom + 14 }, "client"),
  ];
}

function tellCell({ names, clients, counts }, column, place) {
  const value = counts[column][place];
  const [ofClient, ofClass] = [sum(counts[column]), sum(counts.map((row) => row[place]))];
  const share = (all) => percent(all ? value / all : 0, 1);
  return [
    make("div", { class: "place" }, `client ${clients[column]}, class ${names[place]}`),
    make("b", {}, count(value, "sample")),
    `${share(ofClient)} of the client’s ${whole(ofClient)}`,
    `${share(ofClass)} of the class among the clients shown`,
  ];
}
