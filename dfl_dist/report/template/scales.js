// From values to pixels, and where the ticks go.

// The step between ticks: 1, 2 or 5 times a power of ten, at most `most` steps in a span.
function niceStep(span, most) {
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

function linearTicks(low, high, step) {
  const ticks = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) ticks.push(place * step);
  return ticks;
}

// Powers of ten and what lies between them; where that gives too few, ticks as on a linear scale.
function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const factors = decades > 2.5 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
  const every = Math.max(1, Math.ceil(decades / 6));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) ticks.push(...factors.map((factor) => factor * 10 ** power));
  }
  const inside = ticks.filter((value) => value >= low && value <= high);
  return inside.length > 2 ? inside : linearTicks(low, high, niceStep(high - low, 4)).filter((value) => value > 0);
}

function extremes(values, otherwise) {
  if (!values.length) return otherwise;
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function logScale(values, { from, to }) {
  let [low, high] = extremes(values, [0.1, 1]);
  [low, high] = low === high ? [low / 2, high * 2] : [low * 0.9, high * 1.1];
  const span = Math.log10(high / low);
  const place = (value) => from + (Math.log10(Math.max(value, low) / low) / span) * (to - from);
  return { place, ticks: logTicks(low, high), low, high };
}

// `tidy` ends the scale at ticks, and begins it at 0 where that is near; `whole` has no ticks between whole numbers.
function linearScale(values, options) {
  const { from, to, floor = -Infinity, ceiling = Infinity, most = 5, whole = false, tidy = false } = options;
  let [low, high] = extremes(values, [0, 1]);
  if (low === high) {
    const room = whole ? 1 : Math.abs(low) * 0.1 || 0.5;
    [low, high] = [low - room, high + room];
  }
  if (tidy && low > 0 && low < 0.4 * high) low = 0;
  const step = Math.max(whole ? 1 : 0, niceStep(high - low, most));
  if (tidy) {
    [low, high] = [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
  }
  [low, high] = [Math.max(low, floor), Math.min(high, ceiling)];
  const place = (value) => from + ((value - low) / (high - low)) * (to - from);
  return { place, ticks: linearTicks(low, high, step), low, high };
}
