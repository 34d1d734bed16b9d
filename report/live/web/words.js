// How values of runs are written, and small elements of pages.
import { byteAxis } from "./curves.js";
import { byteText, duration, loss, niceStep, whole } from "./format.js";
export { loss, whole };

// el makes an element. Its text is set as text, never as markup.
export function el(tag, { text, ...attributes } = {}, ...children) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") e.className = value;
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

const fixed = (y, step) => y.toFixed(Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))));

export const plain = (y, step) =>
  Math.abs(y) >= 1e5 || (y !== 0 && Math.abs(y) < 1e-4) ? y.toExponential(2) : fixed(y, step);
export const seconds = (s) => duration(s * 1e9);
export const part = (y, step) => fixed(100 * y, 100 * (step ?? 0.001)) + " %";
export const bytes = (b) => (b === 0 ? "0" : byteText(b));
export const rate = (r) => (r >= 99.95 ? whole(r) : r.toPrecision(3)) + " /s";
export const accuracy = (a) => part(a, 0.0001);
export const bubble = (b) => part(b, 0.001);

// leftWords writes the time left as terminals do: as a range with few digits, its ends rounded outwards. It is given
// the least and the most seconds.
export function leftWords(least, most) {
  const [unit, each] = most >= 90 * 60 ? ["h", 3600] : most >= 90 ? ["min", 60] : ["s", 1];
  const step = most / each >= 10 ? 5 : each === 1 ? 1 : 0.5;
  const low = step * Math.floor(least / each / step),
    high = step * Math.ceil(most / each / step);
  if (low === high) return `about ${low} ${unit} left`;
  return low === 0 ? `at most ${high} ${unit} left` : `${low} to ${high} ${unit} left`;
}
const small = (y) => (y >= 1e-4 ? String(+y.toPrecision(3)) : y === 0 ? "0" : y.toExponential(1));
export const four = (x) => plain(x, Math.abs(x) / 1000 || 1);

// ofModel writes a value that a model reports by a name, as the terminal does: what it calls accuracy as a percentage.
export const ofModel = (name, x) => (name === "accuracy" && x >= 0 && x <= 1 ? accuracy(x) : four(x));

const day = (t) => t.toLocaleDateString("en-CA");

// moment writes a time, with its day unless that is today.
export function moment(time) {
  const t = new Date(time);
  return (day(t) === day(new Date()) ? "" : day(t) + " ") + t.toLocaleTimeString("en-GB");
}

// The horizontal axes of curves: steps, time and samples.
const overSteps = (x) => "step " + whole(x);
overSteps.step = (range, count) => Math.max(1, niceStep(range, count));
const overTime = (x, step) => (step >= 60 || x >= 600 ? seconds(x) : plain(x, step) + " s");
overTime.step = (range, count) =>
  [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800,
    43200, 86400,
  ].find((s) => range / s <= count) ?? niceStep(range, count);
const short = (x) =>
  x >= 1e9
    ? +(x / 1e9).toPrecision(4) + "G"
    : x >= 1e6
      ? +(x / 1e6).toPrecision(4) + "M"
      : x >= 1e4
        ? +(x / 1e3).toPrecision(4) + "k"
        : whole(x);
const overSamples = (x) => short(x) + " samples";
overSamples.step = (range, count) => Math.max(1, niceStep(range, Math.max(1, count * 0.8)));
export const axes = {
  step: { name: "steps", text: overSteps, of: (s) => s.step },
  time: { name: "time", text: overTime, of: (s) => s.at },
  samples: { name: "samples", text: overSamples, of: (s) => s.samples },
};

export const states = {
  waits: "not begun",
  begun: "begins",
  going: "trains",
  silent: "silent",
  finished: "finished",
  stopped: "stopped",
  failed: "failed",
};

// stateOf is the state of a run in words, or what it does after its last step, such as an evaluation.
export const stateOf = (r) => (r.state === "going" && r.due) || states[r.state];

const memory = byteAxis(byteText);

// charts are the quantities that curves show, in their order. column is a column in the series of steps, held one in
// the series of evaluations. text writes a value on an axis whose marks are step apart; value writes one in tables.
export const charts = [
  { key: "loss", now: "loss", title: "Loss", column: 0, text: plain, value: loss, log: true, smooth: true },
  { key: "held", now: "held", title: "Evaluation loss", held: 0, text: plain, value: loss, log: true },
  { key: "accuracy", now: "accuracy", title: "Evaluation accuracy", held: 1, text: part, value: accuracy, most: 1 },
  {
    key: "rate",
    now: "rate",
    robust: true,
    title: "Samples per second",
    column: 1,
    text: (y, step) => (y >= 1e4 ? short(y) : plain(y, step)),
    value: rate,
    least: 0,
    smooth: true,
  },
  {
    key: "step",
    now: "step_s",
    robust: true,
    title: "Step time",
    column: 2,
    text: seconds,
    value: seconds,
    least: 0,
    smooth: true,
  },
  {
    key: "bubble",
    now: "bubble",
    robust: true,
    title: "Bubble",
    column: 3,
    text: part,
    value: bubble,
    least: 0,
    most: 1,
    smooth: true,
  },
  { key: "norm", robust: true, title: "Gradient norm", column: 4, text: plain, value: four, smooth: true },
  { key: "lr", title: "Learning rate", column: 5, text: small, value: small },
  {
    key: "peak",
    now: "peak",
    title: "Peak memory of the fullest worker",
    column: 6,
    text: memory,
    value: bytes,
    least: 0,
  },
];

// dashOf is the number of a run's dash pattern. Runs of the same colour differ in it, and so do neighbours.
export const dashOf = (index) => (index + Math.floor(index / 8)) % 4;

// swatch is a sample of the line that a run is drawn with.
export const swatch = (index) =>
  el("i", { class: `swatch r${index % 8} dash${dashOf(index)}`, "aria-hidden": "true" });
