// The step that was traced last beside the predicted one, drawn as the report draws them.
import { sharpContext } from "./curves.js";
import { onGestures } from "./gestures.js";
import { describe, hint, showTip } from "./inspect.js";
import { firstAfter, stepModel } from "./model.js";
import { layoutOf, paintTimeline, placeOf, thingAt } from "./paint.js";
import { onTheme } from "./theme.js";
import { makeView } from "./view.js";
import { el } from "./words.js";

// stepsView adds the drawing to a parent. Its set takes the data of the predicted and of the measured steps, as
// report.StepData has them, either of them null. A step that is looked at closely stays until the next is asked for.
export function stepsView(parent) {
  const canvas = el("canvas", {
    tabindex: "0",
    role: "application",
    class: "step-canvas",
    "aria-label":
      "Timeline of the " +
      "predicted and the measured step. Arrow keys go from box to box, plus and minus zoom, A and D pan, 0 shows all.",
  });
  canvas.id = "timeline";
  const tip = el("div", { class: "tip", hidden: true }),
    details = el("div", { class: "details", role: "status" });
  const around = el("div", { class: "stage" }, canvas, tip),
    legend = el("ul", { class: "legend", "aria-label": "Colours" });
  const choose = el("select", { "aria-label": "Measured step" });
  const held = el("button", { type: "button", text: "Go on", hidden: true });
  const button = (text, label, act) => {
    const b = el("button", { type: "button", text, [text.length > 1 ? "title" : "aria-label"]: label });
    b.addEventListener("click", act);
    return b;
  };
  const view = makeView();
  const tools = el(
    "div",
    { class: "tools" },
    choose,
    held,
    button("+", "Zoom in", () => view.zoom(0.6, view.width / 2)),
    button("−", "Zoom out", () => view.zoom(1 / 0.6, view.width / 2)),
    button("Fit", "Show the whole step", () => view.fit()),
  );
  parent.append(tools, legend, around, details);

  let data = null,
    steps = [],
    layout = null,
    waiting = false,
    shown = 0,
    later = null;
  const other = (thing) => steps.find((s) => s.side !== thing.side);
  const draw = () => {
    waiting = false;
    if (!data || around.clientWidth === 0) return;
    layout = layoutOf(steps, around.clientWidth, data.groups);
    view.width = layout.plot;
    paintTimeline(
      sharpContext(canvas, layout.width, layout.height),
      layout,
      view,
      data.stage_labels,
      data.causes.map((c) => c.name),
    );
  };
  const redraw = () => {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };
  const select = (thing) => {
    view.selected = thing;
    details.replaceChildren(...(thing ? describe(thing, other(thing), data) : hint()));
    redraw();
  };
  // show draws a step; the window stays where it was, unless it was all of the step before.
  const show = () => {
    const fits = view.atFit(),
      { start, end } = view;
    steps = [];
    if (data.predicted.length > 0) steps.push(stepModel(data.predicted[0], "predicted"));
    if (data.measured.length > 0)
      steps.push(stepModel(data.measured[Math.min(shown, data.measured.length - 1)], "measured"));
    view.whole = Math.max(1, ...steps.map((s) => s.end)) * 1.004;
    view.hovered = null;
    tip.hidden = true;
    select(null);
    if (fits) view.fit();
    else view.show(start, end);
    paintLegend();
  };
  const paintLegend = () => {
    const kinds = new Set(steps.flatMap((s) => s.boxes.map((b) => ({ RF: "SF", RB: "SB" })[b.kind] ?? b.kind)));
    const causes = new Set(steps.flatMap((s) => s.rows.flatMap((r) => r.gaps.map((g) => g.cause))));
    const item = (name, text) => el("li", {}, el("i", { class: name }), text);
    legend.replaceChildren(
      ...data.kinds.filter((k) => kinds.has(k.name)).map((k) => item("k-" + k.name, `${k.name} ${k.label}`)),
      ...data.causes.filter((_, i) => causes.has(i)).map((c) => item("c-" + c.name, c.label)),
    );
  };
  const take = (next) => {
    later = null;
    held.hidden = true;
    data = next;
    shown = Math.min(shown, Math.max(0, data.measured.length - 1));
    choose.hidden = data.measured.length < 2;
    choose.replaceChildren(...data.measured.map((panel, i) => new Option(panel.name, i, false, i === shown)));
    show();
  };
  held.addEventListener("click", () => later && take(later));
  choose.addEventListener("change", () => {
    shown = +choose.value;
    show();
  });
  view.listeners.push(redraw);
  onTheme(() => data && select(view.selected));
  onGestures(canvas, view, () => layout?.gutter ?? 0, {
    move(x, y) {
      if (!layout) return;
      const thing = thingAt(layout, view, x, y, 2);
      view.hovered = thing;
      view.cursor = x >= layout.gutter ? view.toTime(x - layout.gutter) : null;
      if (thing) showTip(tip, around, x, y, describe(thing, other(thing), data));
      else tip.hidden = true;
      redraw();
    },
    leave() {
      view.hovered = view.cursor = null;
      tip.hidden = true;
      redraw();
    },
    pick: (x, y, reach) => layout && select(thingAt(layout, view, x, y, reach)),
    zoom: (factor) => {
      const p = view.selected && placeOf(layout, view, view.selected);
      view.zoom(factor, p ? p.x + p.width / 2 - layout.gutter : view.width / 2);
    },
    walk: (dx, dy) => {
      const next = layout && neighbour(layout, view, dx, dy);
      if (next) {
        select(next);
        view.reveal(next);
      }
    },
    enter: () => {
      const s = view.selected;
      if (s) view.show(s.start - (s.end - s.start), s.end + (s.end - s.start));
    },
    clear: () => {
      if (later) take(later);
      else select(null);
      tip.hidden = true;
    },
  });
  new ResizeObserver(redraw).observe(around);

  return (predicted, measured) => {
    const of = measured ?? predicted;
    parent.hidden = !of;
    if (!of) return;
    const next = { ...of, predicted: predicted?.predicted ?? [], measured: measured?.measured ?? [] };
    if (predicted) {
      // the plan's names, where the measured Timeline knows none
      next.stage_labels = of.stage_labels.map((l, i) => l || predicted.stage_labels[i] || "");
      if (next.groups.length === 0) next.groups = predicted.groups;
    }
    if (data && (view.selected || view.hovered)) {
      // somebody looks at something of this one
      later = next;
      held.hidden = false;
      held.textContent = `Go on to ${next.measured[0]?.name ?? "the next step"}`;
      return;
    }
    take(next);
  };
}

// neighbour is the box that an arrow key leads to: the next of the row, or the one at the same time in the next row.
function neighbour(layout, view, dx, dy) {
  const rows = layout.rows,
    now = view.selected;
  const at = now ? rows.findIndex((r) => r.step.side === now.side && r.row.worker === now.worker) : -1;
  if (at < 0) return rows[0]?.row.compute[firstAfter(rows[0].row.compute, view.start)] ?? null;
  const row = rows[(at + dy + rows.length) % rows.length].row.compute;
  const from = dy === 0 && row.includes(now) ? row.indexOf(now) + dx : firstAfter(row, now.start) + (dx < 0 ? -1 : 0);
  return row[Math.min(Math.max(0, from), row.length - 1)] ?? null;
}
