// Draws the steps on the canvas, and finds the box or gap at a point.
import { moment, niceStep, whole } from "./format.js";
import { colour, inkOn, shaded } from "./theme.js";
import { firstAfter } from "./model.js";

const axisHeight = 26;
const titleHeight = 30;
const groupHeight = 19;

// layoutOf gives every row its place, host by host. The more workers there are, the lower the rows.
export function layoutOf(steps, width, hosts) {
  const narrow = width < 620;
  const gutter = narrow ? 40 : 132;
  const most = Math.max(1, ...steps.map((s) => s.rows.length));
  const box = most > 24 ? 14 : most > 10 ? 20 : narrow ? 28 : 30;
  const thin = most > 24 ? 3 : 6;
  const rows = [];
  const titles = [];
  const groups = [];
  let y = axisHeight;
  steps.forEach((step, s) => {
    titles.push({ step, y });
    y += titleHeight;
    for (const host of hosts) {
      const own = host.workers.map((w) => step.rows[w]).filter(Boolean);
      if (host.title && own.length > 0) {
        groups.push({ title: host.title, y });
        y += groupHeight;
      }
      for (const row of own) {
        const lanes = row.comm.filter((l) => l.length > 0).length;
        const height = box + (lanes ? lanes * (thin + 1) + 2 : 0);
        rows.push({ step, row, panel: s, y, box, thin, height });
        y += height + (most > 24 ? 3 : 8);
      }
    }
    y += 6;
  });
  return { gutter, rows, titles, groups, height: Math.ceil(y), narrow, width, plot: Math.max(40, width - gutter - 10) };
}

let causeNames = [];

let byVersion = false;

export function paintTimeline(ctx, layout, view, labels, causes) {
  causeNames = causes;
  byVersion = view.versions;
  const { gutter, width, height, plot } = layout;
  ctx.clearRect(0, 0, width, height);
  ctx.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
  ctx.textBaseline = "middle";
  paintAxis(ctx, layout, view);
  for (const title of layout.titles) paintTitle(ctx, layout, title);
  for (const group of layout.groups) paintGroup(ctx, group);
  for (const r of layout.rows) paintLabel(ctx, layout, r, labels);
  ctx.save();
  ctx.beginPath();
  ctx.rect(gutter, axisHeight - 6, plot, height);
  ctx.clip();
  for (const r of layout.rows) paintRow(ctx, layout, view, r);
  for (const title of layout.titles) paintEnd(ctx, layout, view, title);
  paintMarks(ctx, layout, view);
  ctx.restore();
}

function paintAxis(ctx, { gutter, plot, height }, view) {
  const step = niceStep(view.end - view.start, plot / 90);
  ctx.textAlign = "center";
  for (let t = Math.ceil(view.start / step) * step; t <= view.end + 1e-6; t += step) {
    const x = Math.round(gutter + view.toX(t)) + 0.5;
    ctx.strokeStyle = colour("grid");
    ctx.beginPath();
    ctx.moveTo(x, axisHeight - 4);
    ctx.lineTo(x, height);
    ctx.stroke();
    const text = moment(t, step);
    const half = ctx.measureText(text).width / 2;
    ctx.fillStyle = colour("muted");
    ctx.fillText(text, Math.min(Math.max(x, gutter + half - 2), gutter + plot - half + 8), 11);
  }
}

function paintTitle(ctx, layout, { step, y }) {
  ctx.textAlign = "left";
  ctx.fillStyle = colour("text");
  const font = ctx.font;
  ctx.font = font.replace("12px", "600 13px");
  const name = step.side === "predicted" ? "Predicted" : "Measured";
  // The text has its own background, so that grid lines do not run through it.
  const width = ctx.measureText(name).width;
  ctx.font = font;
  const more = `step ${whole(step.step)} · ${step.took}`;
  ctx.fillStyle = colour("surface");
  ctx.fillRect(0, y + 4, width + ctx.measureText(more).width + 20, titleHeight - 8);
  ctx.fillStyle = colour("text");
  ctx.font = font.replace("12px", "600 13px");
  ctx.fillText(name, 0, y + 15);
  ctx.font = font;
  ctx.fillStyle = colour("muted");
  ctx.fillText(more, width + 10, y + 15);
}

// paintGroup writes the name of the host of the rows below, on a background.
function paintGroup(ctx, { title, y }) {
  ctx.textAlign = "left";
  ctx.fillStyle = colour("surface");
  ctx.fillRect(0, y + 1, ctx.measureText(title).width + 8, groupHeight - 3);
  ctx.fillStyle = colour("muted");
  ctx.fillText(title, 0, y + groupHeight / 2);
}

function paintLabel(ctx, { narrow }, { row, y, box }, labels) {
  ctx.textAlign = "left";
  ctx.fillStyle = colour("text");
  if (narrow || box < 20) {
    ctx.fillText("w" + row.worker, 0, y + box / 2 + 0.5);
    return;
  }
  const name = "worker " + row.worker;
  ctx.fillText(name, 0, y + box / 2 + 0.5);
  const stage = labels[row.worker];
  if (stage) {
    const x = ctx.measureText(name).width + 7;
    ctx.fillStyle = colour("muted");
    ctx.fillText(shorten(ctx, stage, 126 - x), x, y + box / 2 + 0.5);
  }
}

function shorten(ctx, text, room) {
  while (text.length > 2 && ctx.measureText(text).width > room) text = text.slice(0, -2) + "…";
  return text;
}

function paintRow(ctx, layout, view, { step, row, y, box, thin }) {
  const { gutter } = layout;
  const from = gutter + view.toX(0), to = gutter + view.toX(step.end);
  ctx.fillStyle = colour("idle");
  ctx.fillRect(Math.max(gutter, from), y, Math.min(gutter + layout.plot, to) - Math.max(gutter, from), box);
  paintGaps(ctx, gutter, view, row.gaps, y, box);
  paintBoxes(ctx, gutter, view, row.compute, y, box, true);
  let at = y + box + 2;
  for (const lane of row.comm) {
    if (lane.length === 0) continue;
    paintBoxes(ctx, gutter, view, lane, at, thin, false);
    at += thin + 1;
  }
}

// paintGaps colours idle time by its cause.
function paintGaps(ctx, gutter, view, gaps, y, height) {
  for (let i = firstAfter(gaps, view.start); i < gaps.length && gaps[i].start < view.end; i++) {
    const x = gutter + view.toX(gaps[i].start), width = gutter + view.toX(gaps[i].end) - x;
    if (width < 2) continue;
    ctx.fillStyle = colour(causeNames[gaps[i].cause]);
    ctx.globalAlpha = 0.55;
    ctx.fillRect(x, y, width, height);
    ctx.globalAlpha = 1;
  }
}

// paintBoxes draws a lane. Boxes narrower than a pixel are gathered: the pixel gets the colour
// of the kind that fills most of it, and is fainter the less of it is filled.
function paintBoxes(ctx, gutter, view, lane, y, height, named) {
  const scale = 1 / view.perPixel();
  const fine = { pixel: -1, filled: {} };
  for (let i = firstAfter(lane, view.start); i < lane.length; i++) {
    const b = lane[i];
    if (b.start > view.end) break;
    const x = gutter + (b.start - view.start) * scale;
    const width = (b.end - b.start) * scale;
    if (width < 1) {
      const pixel = Math.floor(x);
      if (pixel !== fine.pixel) {
        paintFine(ctx, fine, y, height);
        fine.pixel = pixel;
      }
      fine.filled[b.kind] = (fine.filled[b.kind] ?? 0) + width;
      continue;
    }
    const fill = byVersion && b.version !== null ? versionColour(b)
      : shaded(kindAlias[b.kind] ?? b.kind, b.near === 0 ? b.shade : b.shade + 4);
    ctx.fillStyle = fill;
    const inset = width > 4 ? 0.5 : 0;
    if (named && width > 7) {
      ctx.beginPath();
      ctx.roundRect(x + inset, y, width - 2 * inset, height, 3);
      ctx.fill();
    } else {
      ctx.fillRect(x + inset, y, width - 2 * inset, height);
    }
    // The name is written in the visible part of the box, so that it is seen even if the box fills the view.
    const left = Math.max(x, gutter), seen = Math.min(x + width, gutter + view.width) - left;
    if (named && seen > 13 && height >= 14) nameBox(ctx, b, left, seen, y + height / 2 + 0.5, fill);
  }
  paintFine(ctx, fine, y, height);
}

// paintFine draws a pixel of gathered boxes and resets it for the next.
function paintFine(ctx, fine, y, height) {
  let most = "", sum = 0;
  for (const kind in fine.filled) {
    sum += fine.filled[kind];
    if (most === "" || fine.filled[kind] > fine.filled[most]) most = kind;
    fine.filled[kind] = 0;
  }
  if (sum === 0) return;
  ctx.fillStyle = colour(most in kindAlias ? kindAlias[most] : most);
  ctx.globalAlpha = Math.min(1, Math.max(0.35, sum));
  ctx.fillRect(fine.pixel, y, 1, height);
  ctx.globalAlpha = 1;
}

// versionColours are the colours by which weights of successive updates differ.
const versionColours = ["F", "B", "W", "AR", "EV", "PV"]; // not those of kinds that use no weights

export function versionColour(b) {
  return shaded(versionColours[(((b.version + 3 * b.pipeline) % 6) + 6) % 6], b.near === 0 ? 0 : 4);
}

// kindAlias gives kinds the colour of another kind.
const kindAlias = { RF: "SF", RB: "SB" };

function nameBox(ctx, b, x, width, y, fill) {
  const short = b.kind === "F" || b.kind === "B" || b.kind === "I" || b.kind === "W" ? String(b.within) : b.kind;
  const weights = byVersion ? b.weights : null;
  const wide = width > (weights ? 26 + 8 * weights.length : 52);
  const text = weights ? (wide ? `${b.kind} ${weights}` : weights)
    : wide && short !== b.kind ? `${b.kind} ${short}` : short;
  if (ctx.measureText(text).width > width - 4) return;
  ctx.fillStyle = inkOn(fill);
  ctx.textAlign = "center";
  ctx.fillText(text, x + width / 2, y);
}

// paintEnd draws a line at the end of a step, and one at the end of the step before if the two overlap.
function paintEnd(ctx, { gutter, rows }, view, { step, y }) {
  const own = rows.filter((r) => r.step === step);
  if (own.length === 0) return;
  const last = own[own.length - 1];
  ctx.strokeStyle = colour("muted");
  ctx.setLineDash([3, 3]);
  for (const end of [step.end, step.before]) {
    if (end === 0) continue;
    const x = Math.round(gutter + view.toX(end)) - 0.5;
    ctx.beginPath();
    ctx.moveTo(x, y + titleHeight - 4);
    ctx.lineTo(x, last.y + last.height + 2);
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

// paintMarks draws the cursor's line, outlines of the selected box or gap and of the one under the pointer, and for
// a gap an arrow from the box that it waited for.
function paintMarks(ctx, layout, view) {
  const { gutter, height } = layout;
  if (view.cursor !== null) {
    const x = Math.round(gutter + view.toX(view.cursor)) + 0.5;
    ctx.strokeStyle = colour("muted");
    ctx.globalAlpha = 0.5;
    ctx.beginPath();
    ctx.moveTo(x, axisHeight - 4);
    ctx.lineTo(x, height);
    ctx.stroke();
    ctx.globalAlpha = 1;
  }
  for (const thing of [view.selected, view.hovered]) {
    if (!thing) continue;
    const gap = "why" in thing ? thing : thing.gap;
    if (gap) hatch(ctx, layout, view, gap);
    outline(ctx, layout, view, thing, thing === view.selected ? 2 : 1.5);
    if (gap?.blocker) {
      outline(ctx, layout, view, gap.blocker, 1.5);
      arrow(ctx, layout, view, gap);
    }
  }
}

export function placeOf(layout, view, thing) {
  const r = layout.rows.find((r) => r.step.side === thing.side && r.row.worker === thing.worker);
  if (!r) return null;
  let y = r.y, height = r.box;
  if ("compute" in thing && !thing.compute) {
    const lane = r.row.comm.filter((l) => l.length > 0).findIndex((l) => l.includes(thing));
    y += r.box + 2 + Math.max(0, lane) * (r.thin + 1);
    height = r.thin;
  }
  const x = layout.gutter + view.toX(thing.start);
  return { x, y, width: Math.max(1, layout.gutter + view.toX(thing.end) - x), height };
}

function outline(ctx, layout, view, thing, weight) {
  const p = placeOf(layout, view, thing);
  if (!p) return;
  ctx.strokeStyle = colour("hover");
  ctx.lineWidth = weight;
  ctx.beginPath();
  ctx.roundRect(p.x - 0.5, p.y - 0.5, p.width + 1, p.height + 1, 3);
  ctx.stroke();
  ctx.lineWidth = 1;
}

function hatch(ctx, layout, view, gap) {
  const p = placeOf(layout, view, gap);
  if (!p) return;
  const left = Math.max(p.x, layout.gutter), right = Math.min(p.x + p.width, layout.gutter + layout.plot);
  if (right <= left) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, p.y, right - left, p.height);
  ctx.clip();
  ctx.strokeStyle = colour("muted");
  ctx.globalAlpha = 0.55;
  for (let x = left - p.height - (left % 7); x < right; x += 7) {
    ctx.beginPath();
    ctx.moveTo(x, p.y + p.height);
    ctx.lineTo(x + p.height, p.y);
    ctx.stroke();
  }
  ctx.restore();
}

function arrow(ctx, layout, view, gap) {
  const from = placeOf(layout, view, gap.blocker), to = placeOf(layout, view, gap);
  if (!from || !to || from.y === to.y) return;
  const down = to.y > from.y;
  const x1 = from.x + from.width, y1 = down ? from.y + from.height : from.y;
  const x2 = to.x + to.width, y2 = down ? to.y : to.y + to.height;
  ctx.strokeStyle = ctx.fillStyle = colour("hover");
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
  ctx.lineWidth = 1;
  const turn = Math.atan2(y2 - y1, x2 - x1);
  ctx.beginPath();
  ctx.moveTo(x2, y2);
  ctx.lineTo(x2 - 8 * Math.cos(turn - 0.4), y2 - 8 * Math.sin(turn - 0.4));
  ctx.lineTo(x2 - 8 * Math.cos(turn + 0.4), y2 - 8 * Math.sin(turn + 0.4));
  ctx.fill();
}

// thingAt is the box or gap at a point, or null. Things up to `reach` pixels away count, so that thin ones can be hit.
export function thingAt(layout, view, x, y, reach) {
  if (x < layout.gutter || x > layout.gutter + layout.plot) return null;
  const r = layout.rows.find((r) => y >= r.y - 2 && y < r.y + r.height + 3);
  if (!r) return null;
  const t = view.toTime(x - layout.gutter);
  const slack = reach * view.perPixel();
  const near = (items) => {
    const i = firstAfter(items, t);
    if (i < items.length && items[i].start <= t) return items[i];
    if (i < items.length && items[i].start - t < slack) return items[i];
    if (i > 0 && t - items[i - 1].end < slack) return items[i - 1];
    return null;
  };
  if (y < r.y + r.box + 1) {
    const i = firstAfter(r.row.compute, t);
    const box = r.row.compute[i];
    if (box && box.start <= t) return box;
    return near(r.row.gaps) ?? near(r.row.compute);
  }
  const lanes = r.row.comm.filter((l) => l.length > 0);
  if (lanes.length === 0) return null;
  const k = Math.min(lanes.length - 1, Math.max(0, Math.floor((y - r.y - r.box - 2) / (r.thin + 1))));
  return near(lanes[k]);
}
