// One round as a picture: the clients on a circle, arrows from sender to receiver; with a server, who trained.
//
// A picture has a node and `show(moment, client)`: the round, and the client whose edges stand out, if any. It calls
// `point(client, event, line)` when a client is pointed at (null: not any more) and `pick(client)` on a click or tap.

const PICTURE = 520;
const MIDDLE = PICTURE / 2;
const AROUND = MIDDLE - 52;

// Below 1 towards one colour, above 1 towards the other; a third and three times are the ends.
function colorOf(w) {
  const way = w > 0 ? clamp(Math.log(w) / Math.log(3), -1, 1) : -1;
  return `color-mix(in oklab, var(${way < 0 ? "--low" : "--high"}) ${Math.round(100 * Math.abs(way))}%, var(--even))`;
}

// What a part of a picture that stands for a client listens to.
function listenFor(client, { point, pick }) {
  const follow = (event) => point(client, event);
  return { pointerenter: follow, pointermove: follow, pointerleave: () => point(null), click: () => pick(client) };
}

// Where the clients are, and how large with w = 1.
function placeClients(clients) {
  const unit = clamp((0.32 * 2 * Math.PI * AROUND) / clients, 2.2, 15);
  const places = Array.from({ length: clients }, (_, client) => {
    const angle = (2 * Math.PI * client) / clients - Math.PI / 2;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    return { x: MIDDLE + AROUND * cos, y: MIDDLE + AROUND * sin, cos, sin };
  });
  return { places, unit, radius: (w) => unit * Math.sqrt(clamp(w, 0.06, 5)) };
}

function drawCircle(clients, server, touch) {
  const layout = placeClients(clients);
  const { places, unit, radius } = layout;
  const edges = draw("g", { class: "edges" });
  const nodes = places.map(({ x, y }, client) =>
    draw("circle", { class: "node", "data-client": client, cx: x, cy: y, r: unit, ...listenFor(client, touch) }));
  const every = Math.max(1, Math.ceil((clients * 17) / (2 * Math.PI * AROUND)));
  const beside = ({ x, y, cos, sin }) => ({ x: x + cos * (unit + 17), y: y + sin * (unit + 15), dy: "0.34em" });
  const names = places.map((place, client) =>
    client % every ? null : draw("text", { class: "name", ...beside(place) }, String(client)));
  const frame = { class: `picture${clients > 40 ? " many" : ""}`, viewBox: `0 0 ${PICTURE} ${PICTURE}` };
  const node = draw("svg", frame, edges, server ? drawHub() : null, nodes, names);

  function show({ rows, w }, client) {
    edges.replaceChildren(...(server ? drawSpokes(rows[0], places) : drawEdges(rows, w, client, layout)));
    const trained = new Set(server ? rows[0] : []);
    nodes.forEach((circle, one) => {
      circle.classList.toggle("chosen", one === client);
      circle.classList.toggle("idle", server && !trained.has(one));
      circle.style.fill = server ? (trained.has(one) ? "var(--c0)" : "") : colorOf(w[one]);
      if (!server) circle.setAttribute("r", radius(w[one]).toFixed(2));
    });
  }
  return { node, show };
}

function drawHub() {
  return [
    draw("rect", { class: "hub", x: MIDDLE - 34, y: MIDDLE - 15, width: 68, height: 30, rx: 6 }),
    draw("text", { class: "name", x: MIDDLE, y: MIDDLE, dy: "0.34em" }, "server"),
  ];
}

function drawSpokes(trained, places) {
  return trained.map((client) => draw("line", {
    class: "edge two", "data-from": client, x1: MIDDLE, y1: MIDDLE, x2: places[client].x, y2: places[client].y,
  }));
}

// Every push once; two that go both ways are one line. Those of the client that stands out come last, on top.
function drawEdges(rows, w, client, layout) {
  const drawn = rows.flatMap((row, from) => row.map((to) => ({ from, to, both: rows[to].includes(from) })))
    .filter(({ from, to, both }) => !both || from < to);
  const own = ({ from, to }) => from === client || to === client;
  const kind = (edge) => {
    if (client === null) return "";
    return !own(edge) ? " faint" : edge.both ? " both" : edge.from === client ? " out" : " in";
  };
  return [...drawn.filter((edge) => !own(edge)), ...drawn.filter(own)].map((edge) => draw("path", {
    class: `edge${edge.both ? " two" : ""}${kind(edge)}`, "data-from": edge.from, "data-to": edge.to,
    d: traceEdge(edge, w, layout),
  }));
}

// A line from rim to rim, with a head at its end unless it goes both ways.
function traceEdge({ from, to, both }, w, { places, unit, radius }) {
  const [a, b] = [places[from], places[to]];
  const length = Math.hypot(b.x - a.x, b.y - a.y);
  const [ux, uy] = [(b.x - a.x) / length, (b.y - a.y) / length];
  const at = (along, aside = 0) =>
    `${(a.x + ux * along - uy * aside).toFixed(1)} ${(a.y + uy * along + ux * aside).toFixed(1)}`;
  const [start, end, head] = [radius(w[from]) + 2, length - radius(w[to]) - 2, clamp(unit * 0.65, 3.5, 9)];
  if (both) return `M${at(start)}L${at(end)}`;
  const [one, other] = [at(end - head, head * 0.42), at(end - head, -head * 0.42)];
  return `M${at(start)}L${at(end - head)}M${at(end)}L${one}L${other}Z`;
}
