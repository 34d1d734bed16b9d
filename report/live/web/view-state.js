// What the page shows, as written behind the # of its address, so that a link or the browser's Back shows the same.

export const view = {
  run: "",
  draw: null,
  x: "step",
  sort: "name",
  down: false,
  from: null,
  to: null,
  log: false,
  find: "",
};

const listeners = [];
export const onView = (f) => listeners.push(f);

export function readView() {
  const q = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (q.has(name) && Number.isFinite(+q.get(name)) ? +q.get(name) : null);
  view.run = q.get("run") ?? "";
  view.draw = q.has("draw") ? q.get("draw").split(",").filter(Boolean) : null;
  view.x = ["step", "time", "samples"].includes(q.get("x")) ? q.get("x") : "step";
  view.sort = q.get("sort")?.replace(/^-/, "") ?? "name";
  view.down = q.get("sort")?.startsWith("-") ?? false;
  view.from = number("from");
  view.to = number("to");
  if (view.from === null || view.to === null || view.to <= view.from) view.from = view.to = null;
  view.log = q.get("log") === "1";
  view.find = q.get("find") ?? "";
  listeners.forEach((f) => f());
}

// change changes the view and the address. Going to another run adds an entry to the browser's history.
export function change(what) {
  const another = "run" in what && what.run !== view.run;
  if (another || ("x" in what && what.x !== view.x)) Object.assign(view, { from: null, to: null });
  Object.assign(view, what);
  const q = new URLSearchParams();
  if (view.run) q.set("run", view.run);
  if (view.draw) q.set("draw", view.draw.join());
  if (view.x !== "step") q.set("x", view.x);
  if (view.sort !== "name" || view.down) q.set("sort", (view.down ? "-" : "") + view.sort);
  if (view.from !== null) {
    q.set("from", +view.from.toPrecision(6));
    q.set("to", +view.to.toPrecision(6));
  }
  if (view.log) q.set("log", "1");
  if (view.find) q.set("find", view.find);
  const theme = /(?:^#|&)theme=(auto|light|dark)/.exec(location.hash);
  if (theme) q.set("theme", theme[1]);
  const address = "#" + q.toString().replaceAll("%2C", ",");
  if (another) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  listeners.forEach((f) => f());
}

addEventListener("popstate", readView);
addEventListener("hashchange", readView);
