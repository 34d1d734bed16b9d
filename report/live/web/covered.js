// Finds curves of a chart that are hidden by others.

// covered names the lines that cannot be seen because a line drawn later covers them: "a lies under b".
export function covered(lines, toY) {
  const under = new Map();
  lines.forEach((l, i) => {
    for (let k = lines.length - 1; k > i; k--) {
      if (!liesOn(l, lines[k], toY)) continue;
      under.set(lines[k].name, [...(under.get(lines[k].name) ?? []), l.name]);
      return;
    }
  });
  return [...under]
    .map(([top, names]) =>
      names.length === 1
        ? `${names[0]} lies under ${top}`
        : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]} lie under ${top}`,
    )
    .join("; ");
}

// liesOn says whether a line is less than a pixel away from another everywhere in the window.
function liesOn(l, other, toY) {
  const every = Math.max(1, Math.floor((l.i1 - l.i0) / 200));
  let any = false;
  for (let i = l.i0; i <= l.i1; i += every) {
    const y = l.y[i];
    if (y === null || y === undefined) continue;
    const there = valueAt(other, l.x[i]);
    if (there === null || !(Math.abs(toY(y) - toY(there)) < 1)) return false;
    any = true;
  }
  return any;
}

// valueAt is a line's value at x, interpolated between its points; null where it has none.
function valueAt(l, x) {
  const i = firstFrom(l.x, x);
  if (i >= l.x.length) return null;
  if (l.x[i] === x) return l.y[i] ?? null;
  const a = l.y[i - 1] ?? null,
    b = l.y[i] ?? null;
  return a === null || b === null ? null : a + ((b - a) * (x - l.x[i - 1])) / (l.x[i] - l.x[i - 1]);
}

// firstFrom is the index of the first value in sorted xs that is not below x.
export function firstFrom(xs, x) {
  let low = 0,
    high = xs.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (xs[mid] < x) low = mid + 1;
    else high = mid;
  }
  return low;
}
