// Puts the report's page together.
import { byteText, fixed, loss, whole } from "./format.js";
import { onTheme, startPrint, startTheme } from "./theme.js";
import { versionColour } from "./paint.js";
import { makeTimeline } from "./timeline.js";
import { byteAxis, makeChart, makeNumber, smooth, timeAxis } from "./curves.js";

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);

function startTimeline(canvas) {
  const { view, show, select, redraw } = makeTimeline({ canvas, around: find("stage"), tip: find("tip"),
    details: find("details") });
  let steps = [];
  const nameVersions = () => {
    const first = new Map();
    for (const b of steps.flatMap((s) => s.boxes)) {
      if (b.weights && (b.near === 0 || !first.has(b.weights))) first.set(b.weights, b);
    }
    const order = [...first.values()].sort((a, b) => a.pipeline - b.pipeline || a.version - b.version);
    find("versions-keys").replaceChildren(...order.map((b) => {
      const item = document.createElement("li"), key = document.createElement("i");
      key.style.background = versionColour(b);
      item.append(key, b.weights);
      return item;
    }));
  };
  const choose = (i) => {
    steps = show(data, i, false);
    find("shown").replaceChildren(...steps.map((s) => {
      const item = document.createElement("li");
      item.textContent = `${s.side === "predicted" ? "Predicted" : "Measured"}: ${s.text}`;
      return item;
    }));
    nameVersions();
  };
  if ([...data.predicted, ...data.measured].some((p) => p.events.version)) {
    const button = find("versions");
    button.hidden = false;
    button.addEventListener("click", () => {
      view.versions = !view.versions;
      button.setAttribute("aria-pressed", view.versions);
      find("versions-note").hidden = find("versions-keys").hidden = !view.versions;
      redraw();
    });
  }
  find("zoom-in").addEventListener("click", () => view.zoom(0.6, view.width / 2));
  find("zoom-out").addEventListener("click", () => view.zoom(1 / 0.6, view.width / 2));
  find("zoom-fit").addEventListener("click", view.fit);

  if (data.measured.length > 1) {
    find("choose-label").hidden = false;
    data.measured.forEach((panel, i) => find("choose").append(new Option(panel.name, i)));
    find("choose").addEventListener("change", (e) => choose(+e.target.value));
  }
  onTheme(document.body, nameVersions);
  choose(0);
  const asked = /(?:^#|&)select=([^&]+)/.exec(location.hash);
  if (asked) {
    const text = decodeURIComponent(asked[1]);
    const step = steps[steps.length - 1];
    select(step.boxes.find((b) => b.text === text) ?? null);
  }
}

function startMemory(parent) {
  const p = data.predicted[0], m = data.measured[0];
  const end = Math.max(p?.end ?? 0, m?.end ?? 0);
  const workers = Math.max(p?.workers ?? 0, m?.workers ?? 0);
  for (let w = 0; w < workers; w++) {
    const series = [[p, "predicted"], [m, "measured"]].filter(([panel]) => panel?.memory[w]).map(([panel, name]) => ({
      name, style: name, stepped: true, until: panel.end, x: panel.memory[w].at, y: panel.memory[w].bytes }));
    if (series.every((s) => s.x.length === 0)) continue;
    const peaks = ["predicted", "measured"].map((style, i) => [style, data.peak_bytes[i]?.[w]])
      .filter(([, b]) => b !== undefined)
      .map(([style, b]) => ({ name: "", style: style + "-peak", x: [0, end], y: [b, b] }));
    const note = data.peak_texts[w];
    makeChart(parent, { title: `worker ${w}`, note,
      series: [...series, ...peaks, { name: "", style: "raw", x: [0, end], y: [0, 0] }],
      xText: timeAxis, yText: byteAxis(byteText), yMin: 0, label: `Memory of worker ${w} over the step: ${note}` });
  }
}

// addChart adds a chart, or a number if there is only one point.
function addChart(parent, options) {
  const shown = options.series.filter((s) => s.name !== "");
  const points = Math.max(...shown.map((s) => s.x.length));
  if (points === 0) return;
  if (points > 1) {
    makeChart(parent, { ...options, xText: atStep, marks: data.resumed.map((x) => ({ x, name: "resumed" })) });
    return;
  }
  const [one] = shown.filter((s) => s.x.length === 1);
  makeNumber(parent, { title: options.title, value: options.value ?? textOf(options.note),
    note: [options.unit, `after ${counted(one.x[0], "step")}`].filter(Boolean).join(" ") });
}

const textOf = (note) => typeof note === "string" ? note : note.map((part) => part.text).join(", ");
const counted = (n, one) => `${whole(n)} ${one}${n === 1 ? "" : "s"}`;
const atStep = Object.assign((x) => "step " + whole(x), { least: 1 });
const plain = (y, step) => fixed(y, Math.min(4, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))));

function startLearning(parent) {
  const { losses, eval_losses: tested, accuracies, reference_apart: apart, steps } = data;
  const note = [["training", losses, "measured"], ["evaluation", tested, "dots"]].filter(([, c]) => c.y.length > 0)
    .map(([name, c, style]) => ({ style, text: `${name} ${loss(c.y[c.y.length - 1])}` }));
  const label = `Loss over the steps, at the end ${textOf(note)}`;
  const means = data.loss_means || losses;
  addChart(parent, { title: "Loss", note, yText: plain, label, series: [
    { name: "", style: "raw", x: losses.x, y: losses.y },
    { name: "training", style: "measured", x: means.x, y: smooth(means.y) },
    { name: "evaluation", style: "dots", x: tested.x, y: tested.y },
  ] });
  const right = accuracies.y.length ? fixed(100 * accuracies.y[accuracies.y.length - 1], 2) + " %" : "";
  addChart(parent, { title: "Evaluation accuracy", note: right, yText: (y, step) => plain(100 * y, 100 * step) + " %",
    label: `Evaluation accuracy over the steps, at the end ${right}`,
    series: [{ name: "accuracy", style: "dots", x: accuracies.x, y: accuracies.y }] });
  for (const [name, c] of Object.entries(data.reported || {}).sort()) {
    const part = name === "accuracy" && c.y.every((y) => y >= 0 && y <= 1), last = c.y[c.y.length - 1];
    const percent = (y, step) => plain(100 * y, 100 * step) + " %";
    const text = part ? fixed(100 * last, 2) + " %" : last.toPrecision(5);
    addChart(parent, { title: `Evaluation ${name}`, note: text, yText: part ? percent : plain,
      label: `Evaluation ${name} over the steps, at the end ${text}`,
      series: [{ name, style: "dots", x: c.x, y: c.y }] });
  }
  const most = apart.y.length ? Math.max(...apart.y).toExponential(1) : "", unit = "of the largest parameter";
  const far = `at most ${most} ${unit}`;
  addChart(parent, { title: "Reference from the pipelines' average", note: far, value: most, unit,
    yText: (y) => y === 0 ? "0" : y.toExponential(1), yMin: 0,
    label: `How far the reference is from the average of the pipelines over the steps: ${far}`,
    series: [{ name: "apart", style: "dots", x: apart.x, y: apart.y }] });
  if (steps.x.length > 1) {
    const series = [{ name: "", style: "raw", x: steps.x, y: steps.y },
      { name: "measured", style: "measured", x: [steps.first, steps.last], y: [steps.measured, steps.measured] }];
    const note = [{ style: "measured", text: steps.text }];
    if (steps.predicted) {
      note.push({ style: "predicted", text: steps.predicted_text });
      series.push({ name: "predicted", style: "predicted", x: [steps.first, steps.last],
        y: [steps.predicted, steps.predicted] });
    }
    if (steps.beyond) note.push({ text: `${counted(steps.beyond, "step")} longer than the axis` });
    addChart(parent, { title: "Step time", note, yText: timeAxis, yMin: 0, yMax: steps.most,
      label: `Time of each step: ${textOf(note)}`, series });
  }
}

startPrint();
startTheme();
if (find("timeline") && data.predicted.length + data.measured.length > 0) startTimeline(find("timeline"));
if (find("memory")) startMemory(find("memory"));
if (find("learning")) startLearning(find("learning"));
