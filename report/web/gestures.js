// Wheel, drag, pinch and keys, as changes of the view.

// onGestures listens to the canvas and calls act: at(x, y) returns the box or gap at a point; move(thing, x, y) and
// leave() follow the pointer; pick(thing) selects; walk(dx, dy) goes to a neighbour.
export function onGestures(canvas, view, gutter, act) {
  const pointers = new Map();
  let pressed = null; // where the pointer went down, until it counts as a drag
  let spread = 0;

  const place = (e) => {
    const r = canvas.getBoundingClientRect();
    return { x: e.clientX - r.left, y: e.clientY - r.top };
  };

  canvas.addEventListener("wheel", (e) => {
    const { x } = place(e);
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY);
    const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
    if (sideways || e.shiftKey) {
      e.preventDefault();
      view.pan((sideways ? e.deltaX : e.deltaY) * unit);
      return;
    }
    // When all is visible, turning the wheel further outward scrolls the page.
    if (view.atFit() && e.deltaY > 0 && !e.ctrlKey) return;
    e.preventDefault();
    view.zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * unit * (e.ctrlKey ? 0.01 : 0.0022)))), x - gutter());
  }, { passive: false });

  canvas.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    pointers.set(e.pointerId, place(e));
    canvas.setPointerCapture(e.pointerId);
    pressed = pointers.size === 1 ? { ...place(e), moved: false } : null;
    spread = distance();
  });

  canvas.addEventListener("pointermove", (e) => {
    const now = place(e);
    const before = pointers.get(e.pointerId);
    if (!before) {
      if (e.pointerType === "mouse") act.move(now.x, now.y);
      return;
    }
    if (pointers.size === 2) {
      const middleBefore = middle();
      pointers.set(e.pointerId, now);
      const apart = distance();
      view.pan(middleBefore - middle());
      if (spread > 0 && apart > 0) view.zoom(spread / apart, middle() - gutter());
      spread = apart;
      return;
    }
    pointers.set(e.pointerId, now);
    if (pressed && !pressed.moved && Math.hypot(now.x - pressed.x, now.y - pressed.y) > 4) {
      pressed.moved = true;
      canvas.classList.add("dragging");
      act.leave();
    }
    if (pressed?.moved) view.pan(before.x - now.x);
  });

  const up = (e) => {
    if (!pointers.delete(e.pointerId)) return;
    canvas.classList.remove("dragging");
    const click = pressed && !pressed.moved && e.type === "pointerup";
    if (click) act.pick(pressed.x, pressed.y, e.pointerType === "mouse" ? 2 : 10);
    pressed = null;
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => act.leave());
  canvas.addEventListener("dblclick", (e) => view.zoom(0.4, place(e).x - gutter()));

  const keys = {
    "+": () => act.zoom(0.6), "=": () => act.zoom(0.6), "-": () => act.zoom(1 / 0.6), "_": () => act.zoom(1 / 0.6),
    "0": () => view.fit(), Home: () => view.fit(),
    a: () => view.pan(-view.width / 6), d: () => view.pan(view.width / 6), w: () => act.zoom(0.6),
    s: () => act.zoom(1 / 0.6),
    ArrowLeft: () => act.walk(-1, 0), ArrowRight: () => act.walk(1, 0), ArrowUp: () => act.walk(0, -1),
    ArrowDown: () => act.walk(0, 1),
    Enter: () => act.enter(), Escape: () => act.clear(),
  };
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.shiftKey && (e.key === "ArrowLeft" || e.key === "ArrowRight")) {
      e.preventDefault();
      view.pan((e.key === "ArrowLeft" ? -1 : 1) * view.width / 6);
      return;
    }
    const f = keys[e.key] ?? keys[e.key.toLowerCase()];
    if (!f) return;
    e.preventDefault();
    f();
  });

  function distance() {
    const [a, b] = [...pointers.values()];
    return b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
  }
  function middle() {
    const [a, b] = [...pointers.values()];
    return b ? (a.x + b.x) / 2 : a.x;
  }
}
