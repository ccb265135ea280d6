// What comes first of a run: its state and its numbers.

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

// In what state one run is, or several are.
function makeBadges(states) {
  return make("p", { class: "badges" }, states.map(({ tone, text }) => make("span", { class: `badge ${tone}` }, text)));
}

// What was run, in words.
function makeSetup(pairs) {
  const hint = "Accuracy and test loss are of the mean model x̄. Rounds are counted from 1; the files count from 0.";
  return [makeList(pairs), make("p", { class: "hint" }, hint)];
}
