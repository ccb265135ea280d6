// The stepped view of a run's graphs: round by round who pushed to whom, and with which w everybody came out of it.

const CIRCLE_UP_TO = 48; // clients; with more the matrix reads better, and the circle is a choice
const CIRCLE_AT_MOST = 256;
const PLAY_MS = 900;
const FRAME = "The round’s graph: left and right arrow keys change the round, up and down choose a client";
const PICTURES = { circle: drawCircle, matrix: drawMatrix };
const READING = {
  circle: "An arrow goes from a client to one that it pushed its model to; a line without a head goes both ways. " +
    "Size and colour of a client tell its push weight w after the round: its part of the mass, 1 being even.",
  matrix: "A row is a client that pushes, a column one that is pushed to. Who hears from many ends the round with a " +
    "large push weight w: its part of the mass, 1 being even.",
  server: "There is no graph: each round some clients train, and a server averages their models for all.",
};

function makeGraph(run) {
  const { graph } = run;
  const trouble = graph.trouble ? make("p", { class: "absent" }, graph.trouble) : null;
  return graph.rounds ? [trouble, makeGraphView(run, readMoments(graph))] : [trouble];
}

// What each embedded round was: its number, the out-neighbours of each client, and the w's after it.
function readMoments(graph) {
  const weights = unpack(graph.push_weights, Float32Array);
  const graphs = graph.graphs.map((text) => {
    const flat = unpack(text, Uint16Array);
    const rows = [];
    for (let at = 0; at < flat.length; at += flat[at] + 1) rows.push([...flat.slice(at + 1, at + 1 + flat[at])]);
    return rows;
  });
  return graph.rounds.map((round, index) => ({
    round, rows: graphs[graph.steps[index]], w: weights.subarray(index * graph.clients, (index + 1) * graph.clients),
  }));
}

// What is particular to this run's exchange.
function tellExchange({ graph, overlap, gossip_steps: again }) {
  const parts = [];
  const [shown, all] = [graph.rounds.length, graph.recorded];
  const late = count(overlap, "round");
  if (again > 1) parts.push(`The exchange is repeated ${again} times per round, on the same graph.`);
  if (overlap) parts.push(`What is pushed to others arrives ${late} later; until then it is in flight.`);
  if (shown < all) parts.push(`To keep this page small it has ${whole(shown)} of ${whole(all)} rounds, evenly chosen.`);
  return parts.join(" ");
}

function makeGraphView(run, moments) {
  const { graph } = run;
  const { clients, server } = graph;
  const state = keepPlace(run, moments);
  const touch = { point, pick };
  const weights = makeWeights(graph, moments, touch);
  const words = makeWords();
  const frame = make("div", { class: "frame", tabindex: 0, role: "group", "aria-label": FRAME });
  const steps = makeSteps(moments.length, state, go, () => frame.isConnected);
  let picture = null;

  function use(kind) {
    state.kind = kind;
    picture = PICTURES[kind](clients, server, touch);
    frame.replaceChildren(picture.node);
    words.reading.textContent = [READING[server ? "server" : kind], tellExchange(run)].join(" ");
    refresh();
  }

  function refresh() {
    const moment = moments[state.index];
    const client = state.pointed ?? state.pinned;
    picture.show(moment, client);
    weights.show(state.index, client);
    steps.show(state.index, moment.round);
    words.title.textContent = `Round ${moment.round + 1} of ${whole(graph.recorded)}`;
    words.facts.replaceChildren(...tellRound(moment, graph).map((line) => make("span", {}, line)));
    words.client.replaceChildren(...tellChosen(moment, client, server, weights.trained(state.index)));
  }

  function go(index) {
    state.index = clamp(index, 0, moments.length - 1);
    state.round = moments[state.index].round;
    state.newest = state.index === moments.length - 1;
    refresh();
  }

  function point(client, event = null, line = null) {
    if (client === null) hideTip();
    else {
      const facts = tellClient(moments[state.index], client, server, weights.trained(state.index)).slice(0, 2);
      const lines = [...(line ? [line] : []), ...facts.map(({ text }) => text)];
      showTip([make("div", { class: "place" }, `client ${client}`), ...lines], event.clientX, event.clientY);
    }
    if (state.pointed !== client) { state.pointed = client; refresh(); }
  }

  function pick(client) {
    state.pinned = state.pinned === client ? null : client;
    refresh();
  }

  const kind = state.kind ?? (clients > CIRCLE_UP_TO && !server ? "matrix" : "circle");
  const kinds = [["circle", "circle"], ["matrix", "matrix"]];
  if (!server && clients <= CIRCLE_AT_MOST) steps.buttons.append(makeSwitch("Picture", kinds, kind, use));
  use(kind);
  const below = make("div", { class: "steps" }, weights.strip, steps.slider, steps.buttons);
  const node = make("div", { class: "graph" }, words.reading,
    make("div", { class: "stage" }, frame, below),
    make("div", { class: "side" }, words.title, words.facts, weights.bars, words.client));
  followKeys(node, { frame, slider: steps.slider }, state, { go, pick, clients, last: moments.length - 1 });
  return node;
}

// Where a person is in a run's rounds. A page that follows its run begins with the newest round, and goes on with it as
// long as that is the one that is shown; else it stays.
function keepPlace({ folder }, moments) {
  const first = { round: 0, newest: Boolean(DATA.live), pinned: null, kind: null, timer: null };
  const state = keep(`graph of ${folder}`, first);
  const stays = moments.findLastIndex(({ round }) => round <= state.round);
  state.index = state.newest ? moments.length - 1 : Math.max(0, stays);
  state.pointed = null;
  return state;
}

function makeWords() {
  return {
    reading: make("p", { class: "reading" }),
    title: make("h3", { class: "round" }),
    facts: make("p", { class: "round-facts", "aria-live": "polite" }),
    client: make("p", { class: "client-facts" }),
  };
}

// Left and right change the round, wherever in the view one is; up and down choose a client, in the picture. The slider
// has keys of its own.
function followKeys(node, { frame, slider }, state, { go, pick, clients, last }) {
  const everywhere = {
    ArrowLeft: () => go(state.index - 1), ArrowRight: () => go(state.index + 1), Home: () => go(0), End: () => go(last),
  };
  const inPicture = {
    ArrowUp: () => pick(((state.pinned ?? 0) + clients - 1) % clients),
    ArrowDown: () => pick(((state.pinned ?? -1) + 1) % clients),
    Escape: () => pick(state.pinned),
  };
  node.addEventListener("keydown", (event) => {
    if (event.target === slider) return;
    const act = everywhere[event.key] ?? (event.target === frame ? inPicture[event.key] : null);
    if (act) { event.preventDefault(); act(); }
  });
}

// The buttons and the slider that change the round.
function makeSteps(rounds, state, go, isThere) {
  const scale = { type: "range", min: 0, max: rounds - 1, step: 1, value: 0 };
  const slider = make("input", { ...scale, "aria-label": "Round", input: () => go(Number(slider.value)) });
  const button = (name, words, label, click) =>
    make("button", { type: "button", "data-step": name, "aria-label": label, click }, words);
  const play = button("play", "", "Play the rounds", () => (state.timer === null ? start() : stop()));
  const name = () => { play.textContent = state.timer === null ? "▶ play" : "❚❚ pause"; };

  function start() {
    if (state.index === rounds - 1) go(0);
    state.timer = setInterval(() => state.tick(), PLAY_MS);
    name();
  }

  state.tick = () => { // of the view that was drawn last
    if (state.index === rounds - 1 || !isThere()) stop();
    else go(state.index + 1);
  };

  function stop() {
    clearInterval(state.timer);
    state.timer = null;
    name();
  }

  name();
  const buttons = make("div", { class: "controls" },
    button("back", "◀", "Previous round", () => go(state.index - 1)), play,
    button("on", "▶", "Next round", () => go(state.index + 1)));
  const show = (index, round) => {
    slider.value = index;
    slider.setAttribute("aria-valuetext", `round ${round + 1}`);
  };
  return { slider, buttons, show };
}

// Bars beside the picture and the strip above the slider; of a server's clients, how often each has trained so far.
function makeWeights({ server, clients, rounds, recorded }, moments, touch) {
  const all = moments.flatMap(({ w }) => [...w]);
  const [least, most] = extremes(all, [1, 1]);
  const even = server || (Math.abs(least - 1) < 1e-6 && Math.abs(most - 1) < 1e-6);
  const sofar = new Array(clients).fill(0);
  const times = server && rounds.length === recorded
    ? moments.map(({ rows }) => { for (const client of rows[0]) sofar[client] += 1; return [...sofar]; }) : null;
  const bars = times ? drawBars(clients, Math.max(1, ...sofar), null, touch)
    : server ? null : drawBars(clients, Math.max(1, most), 1, touch);
  const strip = even || moments.length === 1 ? null : drawStrip(moments);
  return {
    bars: bars && make("div", {}, make("h4", {}, times ? "Times trained so far, by client" : "Push weight w by client"),
      bars.node, even ? null : makeWeightKey()),
    strip: strip && make("div", {}, make("h4", {}, "Smallest to largest w, round by round"), strip.node),
    trained: (index) => times?.[index],
    show(index, client) {
      if (times) bars.show(times[index], client, () => "var(--c0)");
      else bars?.show(moments[index].w, client, colorOf);
      strip?.show(index, client);
    },
  };
}

function tellRound({ rows, w }, { server, clients }) {
  if (server) return [`${rows[0].length} of ${count(clients, "client")} trained`];
  const pushes = sum(rows.map((row) => row.length));
  const mutual = sum(rows.map((row, from) => row.filter((to) => to > from && rows[to].includes(from)).length));
  const total = sum(w);
  const [low, high] = extremes([...w], [1, 1]);
  const late = clients - total > 1e-3 ? `; ${number(clients - total)} is in flight` : "";
  return [
    `${count(pushes, "push", "pushes")}, ${count(mutual, "pair")} both ways`,
    high - low < 1e-6 ? `w is ${number(low)} for everybody` : `w from ${number(low)} to ${number(high)}`,
    `w adds up to ${number(total)}${late}`,
  ];
}

function tellChosen(moment, client, server, trained) {
  const told = server ? "how often it trained" : "its edges and its w";
  if (client === null) return [`Point at a client, or tap it, to see ${told}.`];
  const lines = tellClient(moment, client, server, trained);
  return [make("b", {}, `Client ${client}`), ...lines.map(({ text, kind }) => make("span", { class: kind }, text))];
}

// What there is to say of a client in a round, the most telling lines first.
function tellClient({ rows, w }, client, server, trained) {
  if (server) {
    const now = { text: rows[0].includes(client) ? "trained in this round" : "did not train in this round" };
    return trained ? [now, { text: `trained ${count(trained[client], "time")} so far` }] : [now];
  }
  const from = rows.flatMap((row, other) => (row.includes(client) ? [other] : []));
  const mutual = rows[client].filter((other) => from.includes(other));
  const list = (some) => (some.length > 24 ? `${some.slice(0, 24).join(", ")}, …` : some.join(", ") || "nobody");
  const only = (some) => list(some.filter((other) => !mutual.includes(other)));
  return [
    { text: `w = ${number(w[client])}` },
    { text: `out-degree ${rows[client].length}, in-degree ${from.length}` },
    { text: `pushes to ${only(rows[client])}`, kind: "out" },
    { text: `hears from ${only(from)}`, kind: "in" },
    { text: `both ways with ${list(mutual)}`, kind: "both" },
  ];
}
