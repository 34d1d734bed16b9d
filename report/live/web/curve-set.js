// The curves of a page: one chart for each quantity of which a run has values.
import { change, view } from "./view-state.js";
import { makeLines } from "./lines.js";
import { resumedOf } from "./resumed.js";
import { store } from "./store.js";
import { axes, charts, el } from "./words.js";

// curveTools makes the buttons for the horizontal axis and for the scale of losses.
export function curveTools() {
  const choice = el("div", { class: "choice", role: "group", "aria-label": "Curves over" });
  for (const [key, axis] of Object.entries(axes)) {
    const b = el("button", { type: "button", text: axis.name, "data-x": key });
    b.addEventListener("click", () => change({ x: key }));
    choice.append(b);
  }
  const log = el("button", { type: "button", text: "log loss", "data-log": true });
  log.addEventListener("click", () => change({ log: !view.log }));
  const all = el("button", { type: "button", text: "Fit", "data-fit": true, title: "Show all of the curves" });
  all.addEventListener("click", () => change({ from: null, to: null }));
  return el("div", { class: "tools" }, choice, log, all);
}

function press(parent) {
  for (const b of parent.querySelectorAll("[data-x]")) b.setAttribute("aria-pressed", b.dataset.x === view.x);
  for (const b of parent.querySelectorAll("[data-log]")) b.setAttribute("aria-pressed", view.log);
  for (const b of parent.querySelectorAll("[data-fit]")) b.disabled = view.from === null;
}

// curveSet returns a function that draws runs {name, index, drawn} into a parent. That function returns whether there
// was anything to draw.
export function curveSet(parent, tools) {
  const made = new Map();
  const zoom = (from, to) => change(from === null ? { from: null, to: null } : { from, to });
  return (runs) => {
    press(tools);
    const axis = axes[view.x];
    let any = false;
    for (const c of charts) {
      const lines = [];
      for (const r of runs) {
        const s = c.column === undefined ? r.drawn?.held : r.drawn?.steps;
        const i = c.column ?? c.held;
        if (!s || !s.mean[i] || s.step.length === 0) continue;
        lines.push({
          id: r.id,
          name: r.name,
          index: r.index,
          dots: c.column === undefined,
          smooth: c.smooth,
          x: axis.of(s),
          y: s.mean[i],
          low: s.low[i],
          top: s.top[i],
          resumed: resumedOf(r.drawn, { ...axis, key: view.x }),
        });
      }
      let chart = made.get(c.key);
      if (lines.length === 0) {
        if (chart) chart.figure.hidden = true;
        continue;
      }
      any = true;
      if (!chart) {
        chart = makeLines(parent, { ...c, zoom });
        chart.number = el("p", { class: "number", hidden: true });
        chart.figure.append(chart.number);
        made.set(c.key, chart);
        const order = charts.map((x) => made.get(x.key)?.figure).filter(Boolean);
        parent.append(...order);
      }
      chart.figure.hidden = false;
      // A single value is shown as a number, since a chart would be one dot.
      const one = lines.length === 1 && lines[0].x.length === 1;
      chart.figure.classList.toggle("one", one);
      chart.number.hidden = !one;
      if (one) chart.number.textContent = endOf(lines[0], c);
      const ends = lines.slice(0, 3).map((l) => (lines.length > 1 ? l.name + " " : "") + endOf(l, c));
      chart.set(lines, {
        xText: axis.text,
        window: view.from === null ? null : [view.from, view.to],
        log: view.log && c.log,
        note: one ? axis.text(lines[0].x[0], 1) : ends.join(", ") + (lines.length > 3 ? ", …" : ""),
      });
    }
    return any;
  };
}

// endOf writes the last value of a curve, as the table and the large numbers write it.
function endOf(l, c) {
  const y = (c.now && store.runs.get(l.id)?.[c.now]) ?? l.y.findLast((y) => y !== null);
  return y === undefined || y === null ? "–" : c.value(y);
}
