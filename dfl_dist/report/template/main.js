// Puts the page together.

function makePage() {
  const { groups, runs, columns } = DATA;
  const main = document.getElementById("main");
  if (!runs.length) {
    main.replaceChildren(make("p", { class: "absent" }, "There is no run to show."));
    return;
  }
  const alone = runs.length === 1;
  const chosen = make("div");
  const show = (run) => chosen.replaceChildren(...(alone ? [] : makeRunSummary(run)), ...makeParts(run));
  const first = alone ? makeRunSummary(runs[0]) : makeComparison(groups, columns);
  main.replaceChildren(
    makeSection("summary", "Summary", ...first),
    makeCurves(groups),
    alone ? chosen : makeSection("run", "One run", makePicker(show), chosen));
  show(runs[0]);
  const heads = [...main.querySelectorAll("section > h2")];
  const links = heads.map((head) => make("a", { href: `#${head.parentElement.id}` }, head.textContent));
  document.getElementById("nav").append(...links);
}

// What is shown of one run, below the curves.
function makeParts(run) {
  const { environment } = run;
  return [
    makeSection("graph", run.graph.server ? "Who trained" : "Graph", ...makeGraph(run)),
    makeSection("classes", "Classes", makeClasses(run)),
    makeSection("settings", "Settings", makeSettings(run)),
    makeSection("environment", "Environment", environment.length ? makeList(environment)
      : make("p", { class: "absent" }, "environment.json is missing or damaged.")),
  ];
}

function makePicker(show) {
  const options = DATA.groups.map((group, place) => make("optgroup", { label: group.label },
    DATA.runs.map((run, number) =>
      run.group === place ? make("option", { value: number }, `${run.name}, seed ${run.seed}`) : null)));
  const select = make("select", { id: "picker", change: () => {
    hideTip();
    show(DATA.runs[Number(select.value)]);
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
makePage();
