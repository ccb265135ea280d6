// Elements, numbers as people write them, packed arrays, and the one tooltip of the page.

let DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const CHOSEN = {};

// What a person has chosen, by the name of what it is about: kept apart from what is drawn, which is drawn again when
// there are newer data.
function keep(name, first) {
  return (CHOSEN[name] ??= first);
}

// An HTML element; children that are strings become text, never markup.
function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// The same for SVG.
function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function makeSection(id, title, ...children) {
  const head = make("h2", { id: `${id}-title` }, title);
  return make("section", { id, "aria-labelledby": head.id }, head, ...children);
}

// Buttons of which one is pressed; `choices` are pairs of a value and its words.
function makeSwitch(label, choices, chosen, onChoice) {
  const buttons = choices.map(([value, words]) =>
    make("button", { type: "button", "data-value": value, "aria-pressed": String(value === chosen), click: () => {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
      onChoice(value);
    } }, words));
  return make("div", { class: "switch", role: "group", "aria-label": label }, buttons);
}

// Numbers.

const NOTHING = "–";

function percent(value, digits = 2) {
  return value === null ? NOTHING : `${(100 * value).toFixed(digits)} %`;
}

// Four digits, without a tail of zeros; powers of ten only where nothing else is readable.
function number(value) {
  if (value === null) return NOTHING;
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

function bytes(value) {
  if (value === null) return NOTHING;
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
  const power = value < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return `${Number((value / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

function seconds(value) {
  if (value === null) return NOTHING;
  if (value < 1) return `${Number(value.toPrecision(2))} s`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const [minutes, rest] = [Math.floor(value / 60), Math.floor(value % 60)];
  return value < 3600 ? `${minutes} min ${rest} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// A mean and its deviation, both to the digits that the deviation's second one allows.
function tellSpread(mean, std, write) {
  if (write === percent) return `${(100 * mean).toFixed(2)} ± ${percent(std)}`;
  const digits = std > 0 ? clamp(1 - Math.floor(Math.log10(std)), 0, 8) : 4;
  return write === number && Math.abs(mean) < 1e6 ? `${mean.toFixed(digits)} ± ${std.toFixed(digits)}` : write(mean);
}

const FORMS = { percent, number, bytes, seconds };

function whole(value) {
  return value.toLocaleString("en");
}

function count(value, noun, nouns = `${noun}s`) {
  return `${whole(value)} ${value === 1 ? noun : nouns}`;
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

function sum(values) {
  return values.reduce((a, b) => a + b, 0);
}

// Numbers that came as text: base64 of little-endian values.
function unpack(text, Kind) {
  return new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

// The tooltip: lines of text near a place on the screen, never off it.

const tip = document.getElementById("tip");

function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map((line) => (typeof line === "string" ? make("div", {}, line) : line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  tip.style.left = `${clamp(x + 14 + width > room ? x - width - 14 : x + 14, 4, Math.max(4, room - width - 4))}px`;
  tip.style.top = `${clamp(y - height - 10, 4, innerHeight - height - 4)}px`;
}

function hideTip() {
  tip.hidden = true;
}

addEventListener("scroll", hideTip, { passive: true });
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
