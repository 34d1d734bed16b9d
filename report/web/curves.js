// Small charts: memory of each worker, loss, accuracy.
import { duration, moment, niceStep } from "./format.js";
import { colour, onTheme } from "./theme.js";

// makeChart adds a figure with a canvas to a parent. Its series are {x, y, style}, where style is "measured" for a
// full line, "predicted" for a dashed one, either with "-peak" for a dotted one, "raw" for a faint one, or "dots".
// Stepped lines keep their value until the next point. A note is text, or parts {text, style} that each show a sample
// of their line.
export function makeChart(parent, { title, note, series, xText, yText, yMin, yMax, label, marks = [] }) {
  const { figure, said } = makeFigure(parent, title, note);
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  figure.append(canvas);

  let pointer = null;
  const draw = () => drawChart(canvas, series.filter((s) => s.x.length > 0), { xText, yText, yMin, yMax, pointer, marks,
    say: (text) => writeNote(said, text ?? note) });
  canvas.addEventListener("pointermove", (e) => {
    pointer = e.clientX - canvas.getBoundingClientRect().left;
    draw();
  });
  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    draw();
  });
  new ResizeObserver(draw).observe(figure);
  onTheme(figure, draw);
  return draw;
}

// makeNumber adds a figure with one number, for data whose chart would be one dot.
export function makeNumber(parent, { title, value, note }) {
  const { figure } = makeFigure(parent, title, note);
  const number = document.createElement("p");
  number.className = "alone";
  number.textContent = value;
  figure.append(number);
}

function makeFigure(parent, title, note) {
  const figure = document.createElement("figure");
  figure.className = "chart";
  const caption = document.createElement("figcaption");
  const name = document.createElement("span");
  const said = document.createElement("span");
  name.textContent = title;
  writeNote(said, note);
  caption.append(name, said);
  figure.append(caption);
  parent.append(figure);
  return { figure, said };
}

// writeNote puts a note into an element, with a sample of its line in front of each part.
function writeNote(into, note) {
  if (typeof note === "string") {
    into.textContent = note;
    return;
  }
  into.replaceChildren(...note.flatMap(({ text, style }, i) => {
    const part = document.createElement("span");
    part.className = "part";
    if (style) {
      const key = document.createElement("i");
      key.className = style;
      part.append(key);
    }
    part.append(text + (i + 1 < note.length ? "," : ""));
    return [part, " "];
  }));
}

function drawChart(canvas, series, { xText, yText, yMin, yMax, pointer, marks: lines, say }) {
  const width = canvas.parentElement.clientWidth, height = 150;
  const ctx = sharpContext(canvas, width, height);
  if (series.length === 0 || width < 60) return;
  const left = 58, right = 8, top = 8, bottom = 22;
  let [x0, x1, y0, y1] = [Infinity, -Infinity, yMin ?? Infinity, -Infinity];
  for (const s of series) {
    for (const x of s.x) { if (x < x0) x0 = x; if (x > x1) x1 = x; }
    for (const y of s.y) { if (y < y0) y0 = y; if (y > y1) y1 = y; }
  }
  if (x1 <= x0) [x0, x1] = [Math.max(0, x0 - 1), x0 + 1]; // a single point is in the middle
  if (yMax !== undefined) y1 = Math.min(y1, yMax);
  if (y1 <= y0) y1 = y0 + (Math.abs(y0) || 1) * 0.1;
  const step = yText.step ? yText.step(y1 - y0) : niceStep(y1 - y0, 4);
  y1 = Math.ceil(y1 / step - 1e-9) * step;
  if (yMin === undefined) y0 = Math.floor(y0 / step + 1e-9) * step;
  const toX = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
  const toY = (y) => height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom);

  ctx.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
  ctx.textBaseline = "middle";
  ctx.lineWidth = 1;
  for (let y = y0; y <= y1 + step * 1e-6; y += step) {
    ctx.strokeStyle = colour("grid");
    line(ctx, left, Math.round(toY(y)) + 0.5, width - right, Math.round(toY(y)) + 0.5);
    ctx.fillStyle = colour("muted");
    ctx.textAlign = "right";
    ctx.fillText(yText(y, step), left - 8, toY(y));
  }
  const marks = Math.max(xText.least ?? 0, niceStep(x1 - x0, Math.max(2, (width - left) / 90)));
  for (let x = Math.ceil(x0 / marks) * marks; x <= x1 + marks * 1e-6; x += marks) {
    const text = xText(x, marks), half = ctx.measureText(text).width / 2;
    ctx.fillStyle = colour("muted");
    ctx.textAlign = "center";
    ctx.fillText(text, Math.min(toX(x), width - half), height - 8);
  }
  for (const { x, name } of lines.filter((m) => m.x >= x0 && m.x <= x1)) {
    ctx.strokeStyle = ctx.fillStyle = colour("muted");
    ctx.setLineDash([2, 3]);
    line(ctx, Math.round(toX(x)) + 0.5, top, Math.round(toX(x)) + 0.5, height - bottom);
    ctx.setLineDash([]);
    ctx.textAlign = toX(x) > width / 2 ? "right" : "left";
    ctx.fillText(name, toX(x) + (toX(x) > width / 2 ? -4 : 4), top + 6);
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(left - 4, top - 4, width - left - right + 8, height - top - bottom + 8);
  ctx.clip();
  for (const s of series) drawSeries(ctx, s, toX, toY);
  ctx.restore();
  say(pointer === null ? null : readOff(ctx, series, pointer, { left, right, width, height, bottom, top, x0, x1, toX,
    toY, xText, yText, marks, step }));
}

const lineOf = {
  measured: { colour: "accent", width: 2, dash: [] }, predicted: { colour: "muted", width: 1.6, dash: [5, 4] },
  "measured-peak": { colour: "accent", width: 1, dash: [1, 3] },
  "predicted-peak": { colour: "muted", width: 1, dash: [1, 3] },
  raw: { colour: "accent", width: 1, dash: [], alpha: 0.35 }, dots: { colour: "B", width: 1.5, dash: [] },
};

function drawSeries(ctx, s, toX, toY) {
  const look = lineOf[s.style];
  ctx.strokeStyle = ctx.fillStyle = colour(look.colour);
  ctx.lineWidth = look.width;
  ctx.globalAlpha = look.alpha ?? 1;
  ctx.setLineDash(look.dash);
  ctx.lineJoin = "round";
  ctx.beginPath();
  for (let i = 0; i < s.x.length; i++) {
    const x = toX(s.x[i]), y = toY(s.y[i]);
    if (i === 0) ctx.moveTo(x, y);
    else {
      if (s.stepped) ctx.lineTo(x, toY(s.y[i - 1]));
      ctx.lineTo(x, y);
    }
  }
  if (s.stepped && s.until > s.x[s.x.length - 1]) ctx.lineTo(toX(s.until), toY(s.y[s.y.length - 1]));
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
  if (s.style === "dots" || s.x.length === 1) {
    for (let i = 0; i < s.x.length; i++) {
      ctx.beginPath();
      ctx.arc(toX(s.x[i]), toY(s.y[i]), 3, 0, 7);
      ctx.fill();
    }
  }
  ctx.lineWidth = 1;
}

// readOff draws a line at the pointer and writes the value of each series there.
function readOff(ctx, series, pointer, c) {
  const x = c.x0 + Math.min(1, Math.max(0, (pointer - c.left) / (c.width - c.left - c.right))) * (c.x1 - c.x0);
  ctx.strokeStyle = colour("muted");
  line(ctx, c.toX(x), c.top, c.toX(x), c.height - c.bottom);
  const parts = [];
  for (const s of series) {
    if (s.name === "") continue;
    const i = s.stepped ? lastBefore(s.x, x) : nearest(s.x, x);
    if (i < 0) continue;
    parts.push(`${s.name} ${c.yText(s.y[i], c.step / 100)}`);
    ctx.fillStyle = colour(lineOf[s.style].colour);
    ctx.beginPath();
    ctx.arc(c.toX(s.stepped ? x : s.x[i]), c.toY(s.y[i]), 3.5, 0, 7);
    ctx.fill();
  }
  return `${c.xText(x, c.marks / 10)}: ${parts.join(", ")}`;
}

function lastBefore(xs, x) {
  let low = 0, high = xs.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (xs[mid] <= x) low = mid + 1;
    else high = mid;
  }
  return low - 1;
}

function nearest(xs, x) {
  const i = lastBefore(xs, x);
  if (i < 0) return 0;
  return i + 1 < xs.length && xs[i + 1] - x < x - xs[i] ? i + 1 : i;
}

function line(ctx, x1, y1, x2, y2) {
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
}

// sharpContext sizes a canvas for the screen's own pixels and clears it.
export function sharpContext(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + "px";
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}

// byteAxis is an axis of memory with marks at powers of two.
export function byteAxis(byteText) {
  const text = (b) => (b === 0 ? "0" : byteText(b).replace(/\.0+ /, " "));
  text.step = (range) => {
    let step = 1;
    while (range / step > 5) step *= 2;
    return step;
  };
  return text;
}

// smooth is a moving mean over a fortieth of the points, so that a trend shows.
export function smooth(ys) {
  const reach = Math.floor(ys.length / 80);
  const sums = [0];
  for (const y of ys) sums.push(sums[sums.length - 1] + y);
  return ys.map((_, i) => {
    const from = Math.max(0, i - reach), to = Math.min(ys.length, i + reach + 1);
    return (sums[to] - sums[from]) / (to - from);
  });
}

// timeAxis writes nanoseconds: as a mark of an axis with this step, or as a duration.
export const timeAxis = (x, step) => (step >= 1 ? moment(x, step) : duration(x));
