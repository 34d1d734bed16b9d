// Numbers as people read them, the same as the Go side writes them.

function digits(x) {
  const s = Number(x.toPrecision(3)).toString();
  return s.includes("e") ? Math.round(x).toString() : s;
}

// duration writes nanoseconds: "812 ms".
export function duration(ns) {
  const abs = Math.abs(ns);
  if (abs === 0) return "0 s";
  if (abs < 999.5) return Math.round(ns) + " ns";
  if (abs < 999.5e3) return digits(ns / 1e3) + " µs";
  if (abs < 999.5e6) return digits(ns / 1e6) + " ms";
  return (abs < 99.95e9 ? digits(ns / 1e9) : Math.round(ns / 1e9)) + " s";
}

// moment writes a time on an axis whose marks are step nanoseconds apart.
export function moment(ns, step) {
  const [unit, name] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "µs"] : [1, "ns"];
  const places = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return (ns / unit).toFixed(Math.min(places, 6)) + " " + name;
}

// byteText writes an amount of memory: "118 MiB".
export function byteText(b) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (; b >= 999.5 && i < units.length - 1; i++) b /= 1024;
  return (i === 0 ? b.toFixed(0) : b.toFixed(b < 9.995 ? 2 : b < 99.95 ? 1 : 0)) + " " + units[i];
}

// percent writes a relative difference with its sign: "+1.4 %".
export function percent(x) {
  const text = Math.abs(100 * x).toFixed(1);
  return (text === "0.0" ? "±" : x < 0 ? "−" : "+") + text + " %";
}

// niceStep is the smallest of 1, 2, 5 times a power of ten that gives at most count marks.
export function niceStep(range, count) {
  if (!(range > 0)) return 1;
  const raw = range / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  for (const m of [1, 2, 5]) if (m * power >= raw * (1 - 1e-9)) return m * power;
  return 10 * power;
}
