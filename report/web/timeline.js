// The predicted step above the measured one, with words about the box or gap that the user points at, clicks, or
// reaches by keys.
import { sharpContext } from "./curves.js";
import { onGestures } from "./gestures.js";
import { describe, hint, showTip } from "./inspect.js";
import { firstAfter, stepModel } from "./model.js";
import { layoutOf, paintTimeline, placeOf, thingAt } from "./paint.js";
import { onTheme } from "./theme.js";
import { makeView } from "./view.js";

// makeTimeline draws on a canvas inside the element around. It describes boxes in tip and details. Its show takes the
// page's data and the number of the measured step to draw; with stay, the shown part of the time axis is kept, unless
// it was all of the previous step. cleared is called when Escape is pressed, and returns whether it did something.
export function makeTimeline({ canvas, around, tip, details, cleared = () => false }) {
  const view = makeView();
  let data = null, steps = [], layout = null, waiting = false;

  const draw = () => {
    waiting = false;
    if (!data || around.clientWidth === 0) return;
    layout = layoutOf(steps, around.clientWidth, data.groups);
    view.width = layout.plot;
    paintTimeline(sharpContext(canvas, layout.width, layout.height), layout, view, data.stage_labels,
      data.causes.map((c) => c.name));
  };
  const redraw = () => {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };
  const select = (thing) => {
    view.selected = thing;
    details.replaceChildren(...(thing ? describe(thing, steps, data) : hint()));
    redraw();
  };
  const show = (next, i, stay) => {
    const keep = stay && !view.atFit(), { start, end } = view;
    data = next;
    steps = [];
    if (data.predicted.length > 0) steps.push(stepModel(data.predicted[0], "predicted"));
    if (data.measured.length > 0) steps.push(stepModel(data.measured[i], "measured"));
    view.whole = Math.max(1, ...steps.map((s) => s.end)) * 1.004;
    view.hovered = null;
    tip.hidden = true;
    select(null);
    if (keep) view.show(start, end);
    else view.fit();
    return steps;
  };

  view.listeners.push(redraw);
  onTheme(canvas, () => {
    if (!data) return;
    select(view.selected);
    draw();
  });
  onGestures(canvas, view, () => layout?.gutter ?? 0, {
    move(x, y) {
      if (!layout) return;
      const thing = thingAt(layout, view, x, y, 2);
      view.hovered = thing;
      view.cursor = x >= layout.gutter ? view.toTime(x - layout.gutter) : null;
      if (thing) showTip(tip, around, x, y, describe(thing, steps, data));
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
      if (!cleared()) select(null);
      tip.hidden = true;
    },
  });
  new ResizeObserver(redraw).observe(around);
  return { view, show, select, redraw };
}

// neighbour is the box that an arrow key leads to: the next or previous one of the row, or the one at
// the same time in the row above or below.
function neighbour(layout, view, dx, dy) {
  const rows = layout.rows;
  const now = view.selected;
  const at = now ? rows.findIndex((r) => r.step.side === now.side && r.row.worker === now.worker) : -1;
  if (at < 0) return rows[0]?.row.compute[firstAfter(rows[0].row.compute, view.start)] ?? null;
  const row = rows[(at + dy + rows.length) % rows.length].row.compute;
  const from = dy === 0 && row.includes(now) ? row.indexOf(now) + dx : firstAfter(row, now.start) + (dx < 0 ? -1 : 0);
  return row[Math.min(Math.max(0, from), row.length - 1)] ?? null;
}
