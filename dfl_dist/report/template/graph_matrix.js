// The same round as a matrix, for many clients: a row is a sender, a column a receiver.

function drawMatrix(clients, _server, { point, pick }) {
  const [left, top] = [46, 46];
  const cell = (PICTURE - left - 6) / clients;
  const side = (cell - (cell > 5 ? 0.8 : 0)).toFixed(2);
  const square = (from, to) =>
    `M${(left + to * cell).toFixed(2)} ${(top + from * cell).toFixed(2)}h${side}v${side}h-${side}z`;
  const all = draw("path", { class: "cells" });
  const out = draw("path", { class: "cells out" });
  const into = draw("path", { class: "cells in" });
  const both = draw("path", { class: "cells both" });
  const self = Array.from({ length: clients }, (_, client) => square(client, client)).join("");
  const node = draw("svg", { class: "picture matrix", viewBox: `0 0 ${PICTURE} ${PICTURE}` },
    draw("rect", { class: "ground", x: left, y: top, width: cell * clients, height: cell * clients }),
    draw("path", { class: "cells self", d: self }), all, into, out, both, drawMatrixNames(clients, cell, left, top));
  let rows = [];

  function find(event) {
    const frame = node.getBoundingClientRect();
    const from = Math.floor(((event.clientY - frame.top) * (PICTURE / frame.height) - top) / cell);
    const to = Math.floor(((event.clientX - frame.left) * (PICTURE / frame.width) - left) / cell);
    return from in rows && to in rows ? { from, to } : null;
  }

  function hover(event) {
    const found = find(event);
    if (!found) return point(null);
    const { from, to } = found;
    const words = rows[from].includes(to) ? `pushes to client ${to}` : `does not push to client ${to}`;
    return point(from, event, from === to ? "keeps its own share" : words);
  }

  node.addEventListener("pointermove", hover);
  node.addEventListener("pointerleave", () => point(null));
  node.addEventListener("click", (event) => { const found = find(event); if (found) pick(found.from); });

  function show(moment, client) {
    rows = moment.rows;
    const squares = (keep) => rows.map((row, from) =>
      row.filter((to) => keep(from, to)).map((to) => square(from, to)).join("")).join("");
    all.setAttribute("d", squares(() => true));
    all.classList.toggle("faint", client !== null);
    out.setAttribute("d", client === null ? "" : squares((from) => from === client));
    into.setAttribute("d", client === null ? "" : squares((from, to) => to === client));
    const own = (from, to) => (from === client || to === client) && rows[to].includes(from);
    both.setAttribute("d", client === null ? "" : squares(own));
  }
  return { node, show };
}

// Every how many clients one is named, so that names stay apart.
function nameEvery(width, apart) {
  return [1, 2, 5, 10, 20, 50, 100, 200].find((step) => step * width >= apart) ?? 500;
}

function drawMatrixNames(clients, cell, left, top) {
  const every = nameEvery(cell, 17);
  const named = Array.from({ length: Math.ceil(clients / every) }, (_, place) => place * every);
  const middle = (client) => (client + 0.5) * cell;
  return [
    ...named.map((client) => draw("text", { class: "name", x: left + middle(client), y: top - 8 }, String(client))),
    ...named.map((client) =>
      draw("text", { class: "name row", x: left - 6, y: top + middle(client), dy: "0.34em" }, String(client))),
    draw("text", { class: "axis-label", x: left, y: 14 }, "pushes to →"),
    draw("text", { class: "axis-label", x: 0, y: top - 8 }, "client"),
  ];
}
