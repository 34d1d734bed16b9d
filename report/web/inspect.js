// Describes a box or a gap, in the tip beside the pointer and below the timeline.
import { byteText, duration, percent, whole } from "./format.js";
import { minibatchKinds } from "./model.js";
import { colour } from "./theme.js";

function paragraph(className, ...children) {
  const p = document.createElement("p");
  p.className = className;
  p.append(...children);
  return p;
}

function swatch(name) {
  const i = document.createElement("i");
  i.style.background = colour(name);
  return i;
}

// workerOf names a worker, and in a run of several processes also the place where it ran.
function workerOf(worker, data) {
  const where = data.where?.[worker];
  return `worker ${worker}${where ? ` (${where})` : ""}`;
}

// describe returns the paragraphs about a box or gap. steps are the predicted and the measured step.
export function describe(thing, steps, data) {
  if ("why" in thing) return describeGap(thing, data);
  const b = thing;
  const step = steps.find((s) => s.side === b.side), other = steps.find((s) => s.side !== b.side);
  const kind = data.kinds.find((k) => k.name === b.kind)?.label ?? b.kind;
  let what = `${b.text} — ${kind}`;
  if (!minibatchKinds.has(b.kind) && step.micros > 0) {
    const within = step.micros > 1 ? b.within : 0;
    what += `, micro-batch ${within} of step ${whole(step.step + Math.floor(b.number / step.micros))}`;
  } else if (minibatchKinds.has(b.kind)) what += `, of step ${whole(step.step + b.near)}`;
  what += `, stage ${b.stage}, ${workerOf(b.worker, data)}`;
  const out = [paragraph("name-line", swatch(b.kind), what)];
  let times = `${duration(b.start)} to ${duration(b.end)}: ${duration(b.end - b.start)}`;
  if (b.bytes > 0) {
    const speed = b.end > b.start ? `, ${byteText(b.bytes / ((b.end - b.start) / 1e9))}/s` : "";
    times += `, ${byteText(b.bytes)}${speed}`;
  }
  const twin = other?.byTwin.get(b.twin);
  if (twin && twin.end > twin.start) {
    const [predicted, measured] = b.side === "predicted" ? [b, twin] : [twin, b];
    const change = (measured.end - measured.start) / (predicted.end - predicted.start) - 1;
    times += ` · ${twin.side} ${duration(twin.end - twin.start)} (${percent(change)})`;
  }
  out.push(paragraph("", times));
  if (b.version !== null) {
    const first = b.weights.startsWith("p") ? "that its pipeline has for the step's first micro-batch."
      : "that plain training would have for the step's first micro-batch.";
    const apart = Math.abs(b.version);
    out.push(paragraph("", `It uses the weights ${b.weights}: those ` + (b.version === 0 ? first
      : `${apart} update${apart === 1 ? "" : "s"} ${b.version < 0 ? "before" : "behind"} those ${first}`)));
  }
  if (b.gap) out.push(paragraph("", `Idle for ${duration(b.gap.end - b.gap.start)} before it: ${b.gap.why}.`));
  return out;
}

function describeGap(gap, data) {
  const cause = data.causes[gap.cause];
  const title = `Gap of ${duration(gap.end - gap.start)} on ${workerOf(gap.worker, data)}: ${cause.label}`;
  return [
    paragraph("name-line", swatch(cause.name), title),
    paragraph("", `${duration(gap.start)} to ${duration(gap.end)}${gap.before ? `, before ${gap.before.text}` : ""}`),
    paragraph("", gap.why[0].toUpperCase() + gap.why.slice(1) + "."),
  ];
}

// showTip puts the tip beside a point, on a side with enough room.
export function showTip(tip, around, x, y, paragraphs) {
  tip.replaceChildren(...paragraphs);
  tip.hidden = false;
  const room = around.getBoundingClientRect();
  const width = tip.offsetWidth, height = tip.offsetHeight;
  const left = x + 16 + width > room.width ? Math.max(0, x - width - 16) : x + 16;
  const below = y + 18 + height < room.height + 60 || y < height + 18;
  tip.style.left = left + "px";
  tip.style.top = (below ? y + 18 : y - height - 14) + "px";
}

export function hint() {
  const p = paragraph("muted");
  const key = (name) => {
    const k = document.createElement("kbd");
    k.textContent = name;
    return k;
  };
  if (matchMedia("(pointer: coarse)").matches) {
    p.textContent = "Tap a box or a gap to see what it is and why the worker waited. Pinch to zoom, drag to move.";
    return [p];
  }
  p.append("Point at a box or a gap to see what it is and why the worker waited; click to keep it here. Wheel or ",
    key("+"), " ", key("−"), " zoom, drag or ", key("A"), " ", key("D"),
    " move, arrow keys go from box to box, ", key("Enter"),
    " zooms to one, ", key("0"), " shows all.");
  return [p];
}
