// Curves of one or several runs over steps, time or samples. All charts show the same part of that axis, the window.
import { niceStep } from "./format.js";
import { sharpContext } from "./curves.js";
import { covered, firstFrom } from "./covered.js";
import { drawResumed, resumedWords } from "./resumed.js";
import { colour, onTheme } from "./theme.js";
import { dashOf } from "./words.js";

const height = 190,
  left = 62,
  right = 10,
  top = 8,
  bottom = 24;

// redraws is how often curves were drawn, and the milliseconds that the last drawing of curves and of the rest of the
// page took.
export const redraws = { count: 0, curves: 0, page: 0 };
globalThis.millraceRedraws = redraws;

const dirty = new Set();

function later(chart) {
  if (dirty.size === 0) requestAnimationFrame(drawAll);
  dirty.add(chart);
}

function drawAll() {
  const began = performance.now();
  const all = [...dirty];
  dirty.clear();
  for (const c of all) c.draw();
  redraws.count++;
  redraws.curves = performance.now() - began;
}

// makeLines adds a figure with curves. text(y, step) writes a value. zoom(from, to) is called when the user chooses
// another window, with null for all of the axis. Its set takes lines {name, index, dots, x, y, low, top}, the function
// that writes x, and the window.
export function makeLines(parent, { title, text, least, most, robust, zoom, label }) {
  const figure = document.createElement("figure");
  figure.className = "chart";
  const caption = document.createElement("figcaption");
  const name = document.createElement("span"),
    said = document.createElement("span");
  name.textContent = title;
  caption.append(name, said);
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  const same = document.createElement("p");
  same.className = "same muted";
  same.hidden = true;
  figure.append(caption, same, canvas);
  parent.append(figure);

  const chart = { figure, lines: [], xText: String, window: null, log: false, pointer: null, drag: null, note: "" };
  let scale = null;
  chart.draw = () => {
    if (figure.clientWidth > 0)
      scale = draw(canvas, chart, {
        text,
        least,
        most,
        robust,
        say: (t) => {
          said.textContent = t ?? (chart.lines.length > 1 && figure.clientWidth < 420 ? "" : chart.note);
        },
        cover: (t) => {
          same.hidden = t === "";
          if (same.textContent !== t) same.textContent = t;
        },
      });
  };
  chart.set = (lines, { xText, window, log, note }) => {
    Object.assign(chart, { lines, xText, window, log, note });
    canvas.setAttribute("aria-label", `${label ?? title}: ${note}${resumedWords(lines)}`);
    later(chart);
  };
  const place = (e) => e.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button !== 0 || e.pointerType === "touch") return;
    canvas.setPointerCapture(e.pointerId);
    chart.drag = { from: place(e), to: place(e) };
  });
  canvas.addEventListener("pointermove", (e) => {
    chart.pointer = place(e);
    if (chart.drag) chart.drag.to = chart.pointer;
    later(chart);
  });
  canvas.addEventListener("pointerup", (e) => {
    const d = chart.drag;
    chart.drag = null;
    if (d && scale && Math.abs(d.to - d.from) > 6) {
      const at = (x) =>
        scale.x0 + ((Math.min(Math.max(x, left), scale.right) - left) / (scale.right - left)) * (scale.x1 - scale.x0);
      zoom(at(Math.min(d.from, d.to)), at(Math.max(d.from, d.to)));
    } else if (e.pointerType === "touch") chart.pointer = place(e);
    later(chart);
  });
  canvas.addEventListener("pointerleave", () => {
    chart.pointer = chart.drag = null;
    later(chart);
  });
  canvas.addEventListener("dblclick", () => zoom(null));
  canvas.addEventListener("keydown", (e) => {
    if (!scale || e.ctrlKey || e.metaKey || e.altKey) return;
    const { x0, x1, all0, all1 } = scale,
      length = x1 - x0,
      middle = (x0 + x1) / 2;
    const show = (from, to) => {
      const long = Math.min(to - from, all1 - all0),
        start = Math.min(Math.max(from, all0), all1 - long);
      if (long >= (all1 - all0) * 0.999) zoom(null);
      else zoom(start, start + long);
    };
    const keys = {
      "+": () => show(middle - length * 0.3, middle + length * 0.3),
      "-": () => show(middle - length, middle + length),
      ArrowLeft: () => show(x0 - length / 5, x1 - length / 5),
      ArrowRight: () => show(x0 + length / 5, x1 + length / 5),
      0: () => zoom(null),
      Home: () => zoom(null),
      Escape: () => zoom(null),
    };
    keys["="] = keys["+"];
    keys["_"] = keys["-"];
    if (!keys[e.key]) return;
    e.preventDefault();
    e.stopPropagation();
    keys[e.key]();
  });
  const watch = new ResizeObserver(() => later(chart));
  watch.observe(figure);
  onTheme(figure, () => later(chart));
  return chart;
}

// dashes are the patterns of the swatches in live.css. Runs that follow one another differ in colour and in dash.
const dashes = [[], [8, 4], [2, 3], [9, 3, 2, 3]];

const lookOf = (index) => ({ colour: colour("r" + (index % 8)), dash: dashes[dashOf(index)] });

function draw(canvas, chart, { text, least, most, robust, say, cover }) {
  const width = canvas.parentElement.clientWidth;
  const ctx = sharpContext(canvas, width, height);
  const lines = chart.lines.filter((l) => l.x.length > 0);
  if (canvas.parentElement.classList.contains("one")) say(null);
  if (lines.length === 0 || width < 90) return null;
  let [all0, all1] = [Infinity, -Infinity];
  for (const l of lines) {
    all0 = Math.min(all0, l.x[0]);
    all1 = Math.max(all1, l.x[l.x.length - 1]);
  }
  if (all1 <= all0) [all0, all1] = [Math.max(0, all0 - 1), all0 + 1];
  let [x0, x1] = chart.window ?? [all0, all1];
  if (x1 <= all0 || x0 >= all1) [x0, x1] = [all0, all1];
  let [y0, y1] = [Infinity, -Infinity];
  for (const l of lines) {
    [l.i0, l.i1] = [Math.max(0, firstFrom(l.x, x0) - 1), Math.min(l.x.length - 1, firstFrom(l.x, x1))];
    for (let i = l.i0; i <= l.i1; i++) {
      const low = l.low[i],
        high = l.top[i];
      if (low === null || low === undefined || (chart.log && !(high > 0))) continue;
      y0 = Math.min(y0, chart.log && !(low > 0) ? high : low);
      y1 = Math.max(y1, high);
    }
  }
  if (y0 === Infinity) return null;
  const highest = y1;
  if (robust) y1 = Math.max(y0, Math.min(y1, usual(lines)));
  const scale = yScale(y0, y1, chart.log, least, most, text.step);
  const end = width - right;
  const toX = (x) => left + ((x - x0) / (x1 - x0)) * (end - left);
  const toY = (y) => height - bottom - scale.part(y) * (height - top - bottom);

  ctx.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
  ctx.textBaseline = "middle";
  ctx.lineWidth = 1;
  ctx.textAlign = "right";
  for (const y of scale.marks) {
    ctx.strokeStyle = colour("grid");
    rule(ctx, left, Math.round(toY(y)) + 0.5, end, Math.round(toY(y)) + 0.5);
    ctx.fillStyle = colour("muted");
    ctx.fillText(text(y, scale.step), left - 8, toY(y));
  }
  const marks = chart.xText.step?.(x1 - x0, (end - left) / 90) ?? niceStep(x1 - x0, (end - left) / 90);
  ctx.textAlign = "center";
  ctx.fillStyle = colour("muted");
  for (let x = Math.ceil(x0 / marks - 1e-9) * marks; x <= x1 + marks * 1e-6; x += marks) {
    const words = chart.xText(x, marks),
      half = ctx.measureText(words).width / 2;
    ctx.fillText(words, Math.min(Math.max(toX(x), left + half - 10), width - half), height - 9);
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(left - 3, 0, end - left + 6, height - bottom + 3);
  ctx.clip();
  const colourOf = (l, of) => (of > 1 ? lookOf(l.index).colour : colour("muted"));
  drawResumed(ctx, lines, { toX, x0, x1, top, bottom: height - bottom, end, colourOf });
  for (const l of lines) drawLine(ctx, l, toX, toY);
  cover(covered(lines, toY));
  if (chart.drag && Math.abs(chart.drag.to - chart.drag.from) > 6) {
    ctx.fillStyle = colour("accent");
    ctx.globalAlpha = 0.15;
    ctx.fillRect(
      Math.min(chart.drag.from, chart.drag.to),
      top,
      Math.abs(chart.drag.to - chart.drag.from),
      height - top - bottom,
    );
    ctx.globalAlpha = 1;
  }
  ctx.restore();
  if (highest > y1 * 1.001 && scale.part(highest) > 1.001) {
    const words = "▲ to " + text(highest, highest / 1000);
    ctx.fillStyle = colour("surface");
    ctx.fillRect(end - ctx.measureText(words).width - 5, top - 4, ctx.measureText(words).width + 8, 16);
    ctx.fillStyle = colour("muted");
    ctx.textAlign = "right";
    ctx.fillText(words, end, top + 4);
  }
  say(chart.pointer === null ? null : readOff(ctx, chart, lines, { x0, x1, end, toX, toY, text, marks, scale }));
  return { x0, x1, all0, all1, right: end };
}

// usual is an upper end of the axis below which nearly all values in the window lie. Without it, a few far greater
// values would make all others look flat.
function usual(lines) {
  const all = [];
  for (const l of lines) {
    const every = Math.ceil((l.i1 - l.i0 + 1) / 500);
    for (let i = l.i0; i <= l.i1; i += every) if (l.y[i] !== null) all.push(l.y[i]);
  }
  all.sort((a, b) => a - b);
  return all.length < 20 ? Infinity : 1.5 * all[Math.floor(all.length * 0.97)];
}

// yScale returns the function from a value to its part of the height, from 0 to 1, and the values of the grid lines.
function yScale(low, high, log, least, most, stepOf) {
  if (log && high > 0) {
    const a = Math.log10(Math.max(low, high * 1e-9)),
      b = Math.log10(high),
      room = Math.max((b - a) * 0.04, 0.01);
    const marks = [];
    for (let p = Math.floor(a) - 1; p <= b + 1; p++) {
      for (const m of b - a > 3 ? [1] : b - a > 1 ? [1, 3] : [1, 1.5, 2, 3, 5, 7]) {
        const y = m * 10 ** p;
        if (y >= 10 ** (a - room) && y <= 10 ** (b + room)) marks.push(y);
      }
    }
    return {
      marks,
      step: 10 ** Math.floor(a) / 10,
      part: (y) => (Math.log10(Math.max(y, 1e-300)) - a + room) / (b - a + 2 * room),
    };
  }
  if (least !== undefined) low = Math.min(low, least);
  if (high <= low) high = low + (Math.abs(low) || 1) * 0.1;
  if (most !== undefined && high > most) [low, high] = [low - (high - most), most];
  const step = stepOf?.(high - low) ?? niceStep(high - low, 4);
  const y0 = Math.floor(low / step + 1e-9) * step,
    y1 = Math.min(most ?? Infinity, Math.ceil(high / step - 1e-9) * step);
  const marks = [];
  for (let y = y0; y <= y1 + step * 1e-6; y += step) marks.push(y);
  return { marks, step, part: (y) => (y - y0) / (y1 - y0) };
}

// drawLine draws the mean of each part of a curve, and behind it the range from its least to its greatest value.
function drawLine(ctx, l, toX, toY) {
  const look = lookOf(l.index);
  ctx.strokeStyle = ctx.fillStyle = look.colour;
  if (l.low !== l.y) {
    ctx.globalAlpha = 0.16;
    ctx.beginPath();
    let open = false;
    for (let i = l.i0; i <= l.i1; i++) {
      if (l.top[i] === null) continue;
      if (open) ctx.lineTo(toX(l.x[i]), toY(l.top[i]));
      else ctx.moveTo(toX(l.x[i]), toY(l.top[i]));
      open = true;
    }
    for (let i = l.i1; i >= l.i0; i--) if (l.low[i] !== null) ctx.lineTo(toX(l.x[i]), toY(l.low[i]));
    ctx.fill();
    ctx.globalAlpha = 1;
  }
  const many = l.i1 - l.i0 > 300 && l.low === l.y && l.smooth; // single steps are faint, with a moving mean over them
  ctx.lineJoin = "round";
  for (const [ys, width, alpha, dash] of many
    ? [
        [l.y, 1, 0.3, []],
        [smoothed(l.y), 1.9, 1, look.dash],
      ]
    : [[l.y, 1.9, 1, look.dash]]) {
    ctx.setLineDash(dash);
    ctx.globalAlpha = alpha;
    ctx.lineWidth = width;
    ctx.beginPath();
    let open = false;
    for (let i = l.i0; i <= l.i1; i++) {
      if (ys[i] === null || ys[i] === undefined) continue;
      if (open) ctx.lineTo(toX(l.x[i]), toY(ys[i]));
      else ctx.moveTo(toX(l.x[i]), toY(ys[i]));
      open = true;
    }
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
  ctx.setLineDash([]);
  if ((l.dots && l.i1 - l.i0 < 80) || l.x.length === 1) {
    for (let i = l.i0; i <= l.i1; i++) {
      if (l.y[i] === null) continue;
      ctx.beginPath();
      ctx.arc(toX(l.x[i]), toY(l.y[i]), 2.8, 0, 7);
      ctx.fill();
    }
  }
  ctx.lineWidth = 1;
}

// smoothed is a moving mean over a fiftieth of the values.
function smoothed(ys) {
  const reach = Math.max(1, Math.floor(ys.length / 100)),
    out = new Array(ys.length);
  let sum = 0,
    n = 0,
    a = 0,
    b = 0;
  for (let i = 0; i < ys.length; i++) {
    for (; b <= Math.min(ys.length - 1, i + reach); b++)
      if (ys[b] !== null) {
        sum += ys[b];
        n++;
      }
    for (; a < i - reach; a++)
      if (ys[a] !== null) {
        sum -= ys[a];
        n--;
      }
    out[i] = n > 0 ? sum / n : null;
  }
  return out;
}

// readOff draws a line at the pointer and returns words with the value of each run there.
function readOff(ctx, chart, lines, c) {
  const x = c.x0 + Math.min(1, Math.max(0, (chart.pointer - left) / (c.end - left))) * (c.x1 - c.x0);
  ctx.strokeStyle = colour("muted");
  rule(ctx, c.toX(x), top, c.toX(x), height - bottom);
  const parts = [];
  for (const l of lines) {
    if (x > l.x[l.x.length - 1] + (c.x1 - c.x0) / 50) continue;
    let i = firstFrom(l.x, x);
    if (i >= l.x.length || (i > 0 && x - l.x[i - 1] < l.x[i] - x)) i--;
    const y = l.y[i];
    if (y === null || y === undefined) continue;
    const low = l.low[i],
      high = l.top[i];
    const spread =
      l.low !== l.y && high > low ? ` (${c.text(low, c.scale.step / 100)} to ${c.text(high, c.scale.step / 100)})` : "";
    parts.push(
      `${lines.length > 1 ? l.name + " " : ""}${c.text(y, c.scale.step / 100)}${lines.length > 2 ? "" : spread}`,
    );
    ctx.fillStyle = lookOf(l.index).colour;
    ctx.beginPath();
    ctx.arc(c.toX(l.x[i]), c.toY(y), 3.5, 0, 7);
    ctx.fill();
  }
  return `${chart.xText(x, c.marks / 10)}: ${parts.join(", ") || "nothing"}`;
}

function rule(ctx, x1, y1, x2, y2) {
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
}
