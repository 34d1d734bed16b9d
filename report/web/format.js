// Numbers as people read them, written as millrace's Go code writes them.

// fixed is toFixed, but rounds a tie to the even digit as Go does; toFixed rounds it up.
export function fixed(x, places) {
  const text = x.toFixed(places);
  const [, exact] = Math.abs(x).toFixed(100).split(".");
  if (!/^50*$/.test(exact.slice(places))) return text;
  const even = +text.slice(-1) % 2 === 0;
  return even ? text : (x - Math.sign(x) * 10 ** -places / 2).toFixed(places);
}

function three(x) {
  const abs = Math.abs(x);
  return fixed(x, abs < 0.9995 ? 3 : abs < 9.995 ? 2 : abs < 99.95 ? 1 : 0);
}

// duration writes nanoseconds: "812 ms", "2m14s", "1h05m".
export function duration(ns) {
  const s = ns / 1e9, abs = Math.abs(s);
  if (abs === 0) return "0 s";
  if (abs < 999.5e-9) return three(s * 1e9) + " ns";
  if (abs < 999.5e-6) return three(s * 1e6) + " µs";
  if (abs < 0.9995) return three(s * 1e3) + " ms";
  if (abs < 99.95) return three(s) + " s";
  const two = (all, of, large, small) =>
    `${s < 0 ? "-" : ""}${Math.floor(all / of)}${large}${String(all % of).padStart(2, "0")}${small}`;
  if (abs < 3599.5) return two(Math.round(abs), 60, "m", "s");
  if (abs < 48 * 3600 - 30) return two(Math.round(abs / 60), 60, "h", "m");
  return two(Math.round(abs / 3600), 24, "d", "h");
}

// moment writes a time on an axis whose marks are step nanoseconds apart.
export function moment(ns, step) {
  const [unit, name] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "µs"] : [1, "ns"];
  const places = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return (ns / unit).toFixed(Math.min(places, 6)) + " " + name;
}

// byteText writes an amount of memory: "118 MiB".
export function byteText(b) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; b >= 999.5 && i < units.length - 1; i++) b /= 1024;
  return (i === 0 || b >= 999.5 ? whole(b) : three(b)) + " " + units[i];
}

// loss writes a loss with four digits after the point, "0.4213", or with an exponent if it is very small or large,
// "4.54e-7".
export function loss(x) {
  const abs = Math.abs(x);
  return abs >= 1e5 || (x !== 0 && abs < 1e-4) ? x.toExponential(2) : fixed(x, 4);
}

// whole writes a whole number with a comma between thousands: "12,000".
export const whole = (n) => fixed(n, 0).replace(/\B(?=(\d{3})+$)/g, ",");

// percent writes a relative difference with its sign: "+1.4 %".
export function percent(x) {
  const text = fixed(Math.abs(100 * x), 1);
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
