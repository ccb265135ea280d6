// The settings in force beside what was asked and the defaults.

function makeSettings(run) {
  const sections = new Map();
  DATA.settings.forEach(([key, standard, help], place) => {
    const [force, asked] = run.settings[place];
    const source = asked !== standard ? "set" : force !== standard ? "filled" : "default";
    const name = key.includes(".") ? key.split(".")[0] : "general";
    sections.set(name, [...(sections.get(name) ?? []), { key, help, force, asked, standard, source }]);
  });
  const parts = [...sections].map(([name, rows]) => makeSettingsPart(name, rows));
  const none = make("p", { class: "absent", hidden: true }, "No setting fits.");
  const search = make("input", {
    type: "search", placeholder: "find a setting", "aria-label": "Find a setting", input: refresh,
  });
  const only = make("input", { type: "checkbox", change: refresh });

  function refresh() {
    const wanted = search.value.trim().toLowerCase();
    for (const { node, lines } of parts) {
      for (const { row, line } of lines) {
        const fits = `${row.key} ${row.help} ${row.force}`.toLowerCase().includes(wanted);
        line.hidden = !fits || (only.checked && row.source === "default");
      }
      node.hidden = lines.every(({ line }) => line.hidden);
      if (wanted) node.open = true;
    }
    none.hidden = !parts.every(({ node }) => node.hidden);
  }

  return make("div", {},
    make("p", { class: "hint" }, make("b", { class: "set" }, "Bold"), " is what was asked for other than the default; ",
      make("span", { class: "filled" }, "italics"), " were filled in by the method or the surroundings."),
    make("div", { class: "controls" }, search, make("label", {}, only, " only what differs from the defaults")),
    make("div", { class: "parts" }, parts.map(({ node }) => node)), none);
}

function makeSettingsPart(name, rows) {
  const lines = rows.map((row) => {
    const more = { set: `default ${row.standard}`, filled: `asked ${row.asked}`, default: "" }[row.source];
    const name = make("th", { scope: "row" }, row.key);
    const cells = [name, make("td", {}, row.force), make("td", { class: "detail" }, more)];
    return { row, line: make("tr", { class: row.source, title: row.help }, cells) };
  });
  const differ = rows.filter(({ source }) => source === "set").length;
  const head = make("summary", {}, name, make("span", { class: "detail" }, differ ? `${differ} set` : ""));
  const table = make("table", { class: "settings" }, make("tbody", {}, lines.map(({ line }) => line)));
  return { node: make("details", { open: true }, head, make("div", { class: "scroll" }, table)), lines };
}
