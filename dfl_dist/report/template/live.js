// A page that follows its runs: it asks the server that it came from for newer data, and draws them in place.

const SILENCE_MS = 20_000; // the server answers within half of that, also where there is nothing new
const RETRY_MS = 3_000;
const PRESSED_MS = 100;

const badge = make("span", { id: "live", class: "badge" });
let mouse = null; // where it was last seen

function pause(ms) {
  return new Promise((resolve) => { setTimeout(resolve, ms); });
}

function showBadge(words, kind) {
  badge.textContent = words;
  badge.dataset.kind = kind;
}

function tellLive() {
  const { text, running, over, version } = DATA.live;
  badge.dataset.version = version;
  showBadge(text, over ? "over" : running.length ? "live" : "waiting");
}

// The newer data, once there are any; null where there are none so far, or nobody answers.
async function ask() {
  try {
    const headers = { "If-None-Match": DATA.live.version };
    const answer = await fetch("data.json", { headers, cache: "no-store", signal: AbortSignal.timeout(SILENCE_MS) });
    if (!answer.ok && answer.status !== 304) throw new Error(`status ${answer.status}`);
    const newer = answer.ok ? await answer.json() : null;
    tellLive();
    return newer;
  } catch {
    showBadge("no longer live", "lost");
    await pause(RETRY_MS);
    return null;
  }
}

async function followRuns() {
  while (!DATA.live.over) {
    const newer = await ask();
    if (!newer) continue;
    await untilReleased();
    redraw(newer);
  }
}

// A slider that is being dragged must not be taken away.
async function untilReleased() {
  while (document.querySelector("main :active")) {
    await pause(PRESSED_MS);
  }
}

// Draws newer data in place: what a person has scrolled to, points at or has reached by the keyboard stays.
function redraw(newer) {
  const main = document.getElementById("main");
  const goBack = [keepScroll(main), keepFocus(main)];
  hideTip();
  DATA = newer;
  document.title = DATA.headline;
  document.querySelector("h1").textContent = DATA.headline.replace(/ %/g, "\u00a0%").replace(/ ± /g, "\u00a0±\u00a0");
  drawPage();
  for (const go of goBack) go();
  pointAgain();
  tellLive();
}

function keepScroll(main) {
  const boxes = () => [...main.querySelectorAll(".scroll")];
  const before = boxes().map(({ scrollLeft }) => scrollLeft);
  const top = (id) => document.getElementById(id)?.getBoundingClientRect().top;
  const shown = [...main.querySelectorAll("section")].find((one) => one.getBoundingClientRect().bottom > 0)?.id;
  const height = scrollY ? top(shown) : undefined; // who is at the top stays there, also when the headline grows
  return () => {
    const after = boxes();
    if (after.length === before.length) after.forEach((box, index) => { box.scrollLeft = before[index]; });
    if (height !== undefined) scrollBy({ top: (top(shown) ?? height) - height, behavior: "instant" });
  };
}

// The element that has the focus, found again by its way from the nearest one that has a name.
function keepFocus(main) {
  const focused = document.activeElement;
  if (focused === main || !main.contains(focused)) return () => {};
  const near = focused.closest("[id]");
  const way = [];
  for (let at = focused; at !== near; at = at.parentElement) way.unshift([...at.parentElement.children].indexOf(at));
  return () => {
    const found = way.reduce((at, index) => at?.children[index], document.getElementById(near.id));
    if (found?.tagName === focused.tagName) found.focus({ preventScroll: true });
  };
}

// What the mouse rests on is another element now, which has to say what the one before said.
function pointAgain() {
  if (!mouse) return;
  const where = { clientX: mouse.clientX, clientY: mouse.clientY, bubbles: true };
  document.elementFromPoint(where.clientX, where.clientY)?.dispatchEvent(new PointerEvent("pointermove", where));
}

addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") mouse = event; }, { passive: true });
document.documentElement.addEventListener("pointerleave", () => { mouse = null; });
document.getElementById("theme").before(badge);
tellLive();
followRuns();
