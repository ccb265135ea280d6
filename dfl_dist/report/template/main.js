// Puts the page together.

const CHOSEN_RUN = make("div"); // what is shown of one run, below the curves
const PARTS = new Map(); // what was drawn once and need not be drawn again, and from what

// Draws the page; again when there are newer data.
function drawPage() {
  const { groups, runs, columns, grid, states, common } = DATA;
  const main = document.getElementById("main");
  if (!runs.length) {
    main.replaceChildren(make("p", { class: "absent" }, "There is no run to show."));
    return;
  }
  const alone = runs.length === 1;
  const list = [groups.map(({ label }) => label), runs.map(({ folder, group }) => [folder, group])];
  const numbers = alone ? [makeTiles(runs[0])] : makeComparison(groups, columns, grid);
  const hasGrid = !alone && grid.columns.length > 1;
  setParts(main, [
    makeSection("summary", "Summary", makeBadges(states), ...(hasGrid ? makeGrid(grid) : numbers)),
    makeCurves(groups, grid),
    ...(hasGrid ? [makeSection("numbers", "All numbers", ...numbers)] : []),
    ...(alone ? [CHOSEN_RUN] : [
      part("common", common, () => makeSection("common", "In common", makeList(common))),
      part("run", list, () => makeSection("run", "One run", makePicker(), CHOSEN_RUN))]),
  ]);
  drawRun(chooseRun());
  const heads = [...main.querySelectorAll("section > h2")];
  const links = heads.map((head) => make("a", { href: `#${head.parentElement.id}` }, head.textContent));
  document.getElementById("nav").replaceChildren(...links);
}

// Puts these elements, and no others, into a place; those that are there already are not touched.
function setParts(place, parts) {
  for (const child of [...place.children]) {
    if (!parts.includes(child)) child.remove();
  }
  parts.forEach((part, index) => {
    if (place.children[index] !== part) place.insertBefore(part, place.children[index] ?? null);
  });
}

// A part of the page: that of the time before as long as it is drawn from the same data.
function part(name, data, makePart) {
  const from = JSON.stringify([data]);
  if (PARTS.get(name)?.from !== from) PARTS.set(name, { from, node: makePart() });
  return PARTS.get(name).node;
}

function drawRun(run) {
  const { folder, about, graph, settings, environment } = run;
  const picker = document.getElementById("picker");
  if (picker) picker.value = DATA.runs.indexOf(run);
  const exchange = [folder, graph, run.overlap, run.gossip_steps];
  setParts(CHOSEN_RUN, [
    ...(DATA.runs.length === 1 ? [] : [make("div", {}, makeBadges([run.state]), makeTiles(run))]),
    part("setup", about, () => makeSection("setup", "Setup", ...makeSetup(about))),
    part("graph", exchange, () => makeSection("graph", graph.server ? "Who trained" : "Graph", ...makeGraph(run))),
    part("classes", DATA.classes[run.classes], () => makeSection("classes", "Classes", makeClasses(run))),
    part("settings", [DATA.settings, settings], () => makeSection("settings", "Settings", makeSettings(run))),
    part("environment", environment, () => makeSection("environment", "Environment",
      environment.length ? makeList(environment)
        : make("p", { class: "absent" }, "environment.json is missing or damaged."))),
  ]);
}

// The run that a person has chosen; until then one that is at work, as long as it is.
function chooseRun() {
  const chosen = keep("run", { folder: null, byHand: false });
  const running = DATA.live?.running ?? [];
  if (!chosen.byHand && running.length && !running.includes(chosen.folder)) chosen.folder = running[0];
  const run = DATA.runs.find(({ folder }) => folder === chosen.folder) ?? DATA.runs[0];
  chosen.folder = run.folder;
  return run;
}

function makePicker() {
  const options = DATA.groups.map((group, place) => make("optgroup", { label: group.label },
    DATA.runs.map((run, number) =>
      run.group === place ? make("option", { value: number }, `${run.name}, seed ${run.seed}`) : null)));
  const select = make("select", { id: "picker", change: () => {
    hideTip();
    Object.assign(keep("run"), { folder: DATA.runs[Number(select.value)].folder, byHand: true });
    drawRun(chooseRun());
  } }, options);
  return make("div", { class: "controls" }, make("label", { for: "picker" }, "Show the run"), select);
}

// Light or dark: as the system has it until somebody chooses.
function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const { dataset } = document.documentElement;
  const isDark = () => (dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const label = () => {
    button.textContent = isDark() ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent} colours`);
  };
  button.addEventListener("click", () => { dataset.theme = isDark() ? "light" : "dark"; label(); });
  dark.addEventListener("change", label);
  label();
}

followTheme();
drawPage();
