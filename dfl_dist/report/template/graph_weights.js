// Beside the picture of a round: a bar for each client's w; and above the slider how the w's go over the rounds.

// Bars on one scale for all rounds; `mark` is a value to compare with, or null.
function drawBars(clients, most, mark, touch) {
  const [width, height, left, ground] = [300, 116, 26, 102];
  const each = (width - left) / clients;
  const place = (value) => 6 + (ground - 6) * (1 - Math.min(value, most) / most);
  const across = Array.from({ length: clients }, (_, client) => left + client * each);
  const hits = across.map((x, client) =>
    draw("rect", { class: "hit", x, y: 0, width: each, height: ground, ...listenFor(client, touch) }));
  const bars = across.map((x) => draw("rect", { class: "bar", x: x + 0.1 * each, width: each * 0.8 }));
  const ticks = [...new Set([0, mark ?? 0, most])].map((value) => draw(
    "text", { class: "name row", x: left - 4, y: place(value), dy: "0.34em" }, number(Number(value.toPrecision(2)))));
  const every = nameEvery(each, 16);
  const names = across.map((x, client) =>
    client % every ? null : draw("text", { class: "name", x: x + each / 2, y: height - 3 }, String(client)));
  const level = { x1: left, x2: width, y1: place(mark ?? 0), y2: place(mark ?? 0) };
  const line = mark === null ? null : draw("line", { class: "mark", ...level });
  const node = draw(
    "svg", { class: "bars", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, bars, line, ticks, names, hits);

  function show(values, client, color) {
    bars.forEach((bar, one) => {
      bar.setAttribute("y", place(values[one]).toFixed(2));
      bar.setAttribute("height", (ground - place(values[one])).toFixed(2));
      bar.style.fill = color(values[one]);
      bar.classList.toggle("chosen", one === client);
    });
  }
  return { node, show };
}

// From the smallest to the largest w of each round, the line of one client, and where the slider stands.
function drawStrip(moments) {
  const [width, height] = [1000, 54];
  const ranges = moments.map(({ w }) => extremes([...w], [1, 1]));
  const most = Math.max(...ranges.map(([, high]) => high));
  const across = (index) => (moments.length > 1 ? (index / (moments.length - 1)) * width : width / 2).toFixed(1);
  const up = (value) => (height - 3 - (value / most) * (height - 6)).toFixed(1);
  const trace = (values) => values.map((value, index) => `${across(index)} ${up(value)}`);
  const band = [...trace(ranges.map(([low]) => low)), ...trace(ranges.map(([, high]) => high)).reverse()];
  const own = draw("path", { class: "own" });
  const now = draw("path", { class: "now" });
  const frame = { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" };
  const node = draw("svg", { class: "strip", ...frame, "aria-hidden": "true" },
    draw("path", { class: "band", d: `M${band.join("L")}Z` }),
    draw("path", { class: "mark", d: `M0 ${up(1)}H${width}` }), own, now);

  function show(index, client) {
    own.setAttribute("d", client === null ? "" : `M${trace(moments.map(({ w }) => w[client])).join("L")}`);
    now.setAttribute("d", `M${across(index)} 0V${height}`);
  }
  return { node, show };
}

function makeWeightKey() {
  const [low, even, high] = ["w ≤ ⅓", "1", "≥ 3"].map((text) => make("span", {}, text));
  return make("div", { class: "weight-key", "aria-hidden": "true" }, low, make("i"), even, make("i"), high);
}
