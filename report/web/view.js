// The part of the time axis that is shown; it is the same for the predicted and the measured step.

export function makeView() {
  const view = { start: 0, end: 1, whole: 1, width: 1, selected: null, hovered: null, cursor: null, versions: false,
    listeners: [] };

  view.changed = () => view.listeners.forEach((f) => f());
  view.perPixel = () => (view.end - view.start) / view.width;
  view.toX = (t) => (t - view.start) / view.perPixel();
  view.toTime = (x) => view.start + x * view.perPixel();
  view.atFit = () => view.end - view.start >= view.whole * 0.999;

  // show shows [start, end], moved inside the whole axis and widened to 200 ns if it is shorter.
  view.show = (start, end) => {
    const length = Math.min(view.whole, Math.max(200, end - start));
    start = Math.min(Math.max(0, start + (end - start - length) / 2), view.whole - length);
    view.start = start;
    view.end = start + length;
    view.changed();
  };
  view.fit = () => view.show(0, view.whole);
  view.pan = (pixels) => view.show(view.start + pixels * view.perPixel(), view.end + pixels * view.perPixel());
  // zoom changes the scale by a factor and keeps the time at x where it is.
  view.zoom = (factor, x) => {
    const length = Math.min(view.whole, Math.max(200, (view.end - view.start) * factor));
    const at = view.toTime(x);
    const start = at - (x / view.width) * length;
    view.show(start, start + length);
  };
  // reveal centres the shown part on a box that is not completely inside it.
  view.reveal = (box) => {
    const length = view.end - view.start;
    if (box.start < view.start || box.end > view.end) {
      const middle = (box.start + box.end) / 2;
      view.show(middle - length / 2, middle + length / 2);
    }
  };
  return view;
}
