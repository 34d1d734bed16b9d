// The colour theme: light, dark, or the system's. "#theme=dark" in the address sets it, so a link can choose.

const themes = ["auto", "light", "dark"];
let listeners = []; // weak references to elements
let chosen = "auto";
let colours = {};

function stored() {
  try {
    return localStorage.getItem("millrace-theme");
  } catch {
    return null; // a page opened from a file may have no storage
  }
}

function applyTheme() {
  const dark = chosen === "dark" || (chosen === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  colours = {};
  const button = document.getElementById("theme");
  button.firstChild.textContent = { auto: "◐ ", light: "☀ ", dark: "☾ " }[chosen];
  const name = { auto: "Auto", light: "Light", dark: "Dark" }[chosen];
  button.querySelector(".name").textContent = name;
  button.setAttribute("aria-label", name + " colours; press for others");
  changed();
}

export function startTheme() {
  const asked = /(?:^#|&)theme=(auto|light|dark)/.exec(location.hash);
  chosen = asked ? asked[1] : themes.includes(stored()) ? stored() : "auto";
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  document.getElementById("theme").addEventListener("click", () => {
    chosen = themes[(themes.indexOf(chosen) + 1) % themes.length];
    try {
      localStorage.setItem("millrace-theme", chosen);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    applyTheme();
  });
  applyTheme();
}

// startPrint has the page redrawn for printing: in the light theme, and as wide as a page of A4.
export function startPrint() {
  const root = document.documentElement;
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    for (const d of document.querySelectorAll("details:not([open])")) {
      d.open = d.dataset.opened = true;
    }
    root.dataset.theme = "light";
    colours = {};
    changed();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    for (const d of document.querySelectorAll("details[data-opened]")) {
      d.open = false;
      delete d.dataset.opened;
    }
    applyTheme();
  });
}

// onTheme has f called when the colours change, as long as the element exists. The reference is weak: otherwise a page
// that makes new elements as long as it is open would keep all old ones in memory.
export function onTheme(element, f) {
  listeners = listeners.filter((l) => l.deref());
  listeners.push(new WeakRef(element));
  (element.onColours ??= []).push(f);
}

function changed() {
  for (const l of listeners) for (const f of l.deref()?.onColours ?? []) f();
}

// colour is the value of a custom property of the style sheet, as a string for a canvas.
export function colour(name) {
  colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "#888888";
  return colours[name];
}

const shadeOf = [1, 0.62, 0.8, 0.45];

// shaded mixes a colour with the background. Shades 0 to 3 tell a worker's first, second, ... stage apart; the style
// sheet's .s1 to .s3 are the same. Shades from 4 on are fainter, as the style sheet's .near, for the steps before and
// after the one that is shown.
export function shaded(name, shade) {
  const key = name + shade;
  if (!shade) return colour(name);
  if (colours[key]) return colours[key];
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const ground = parts(colour("surface")), part = shadeOf[shade % 4] * (shade < 4 ? 1 : 0.4);
  const mixed = parts(colour(name)).map((c, i) => Math.round(part * c + (1 - part) * ground[i]));
  colours[key] = "#" + mixed.map((c) => c.toString(16).padStart(2, "0")).join("");
  return colours[key];
}

// inkOn is black or white, whichever reads better on a #rrggbb colour.
export function inkOn(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const c = parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 * 0.62 ? "#ffffff" : "#14181f";
}
