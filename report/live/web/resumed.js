// Marks where runs were resumed, as the report's curves have them.

// resumedOf returns where a run was resumed: after which steps, and at which values of the axis. It leaves out what
// lies before its first step, and a part that has no step yet.
export function resumedOf(run, axis) {
  const s = run?.steps,
    out = [];
  for (const e of (s && run.details?.events) ?? []) {
    if (e.kind !== "begun" || !(e.step > 0)) continue;
    const at = s.step.findLastIndex((n) => n <= e.step);
    while (out.length > 0 && out.at(-1).step >= e.step) out.pop(); // a later start went back to this step
    if (at < 0 || at === s.step.length - 1) continue;
    out.push({ step: e.step, x: axis.key === "step" ? e.step + 1 : axis.of(s)[at] });
  }
  return out;
}

// drawResumed draws a dashed line at each mark. A few marks have a word beside them.
export function drawResumed(ctx, lines, { toX, x0, x1, top, bottom, end, colourOf }) {
  const few = lines.reduce((n, l) => n + (l.resumed?.length ?? 0), 0) <= 3;
  ctx.save();
  ctx.setLineDash([2, 3]);
  for (const l of lines) {
    for (const { x } of l.resumed ?? []) {
      if (x < x0 || x > x1) continue;
      const at = Math.round(toX(x)) + 0.5,
        late = at > end / 2;
      ctx.strokeStyle = ctx.fillStyle = colourOf(l, lines.length);
      ctx.beginPath();
      ctx.moveTo(at, top);
      ctx.lineTo(at, bottom);
      ctx.stroke();
      ctx.textAlign = late ? "right" : "left";
      if (few) ctx.fillText("resumed", at + (late ? -4 : 4), top + 6);
    }
  }
  ctx.restore();
}

// resumedWords says where runs were resumed, for readers of the page's text.
export function resumedWords(lines) {
  const of = (l) => (lines.length > 1 ? l.name + " " : "");
  const said = lines
    .filter((l) => l.resumed?.length > 0)
    .map((l) => `${of(l)}resumed after step ${l.resumed.map((m) => m.step).join(", ")}`);
  return said.length > 0 ? "; " + said.join("; ") : "";
}
