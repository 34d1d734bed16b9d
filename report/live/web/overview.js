// The page of all runs: a sortable table; and of the chosen runs the curves, the plans and the settings that differ.
import { curveSet, curveTools } from "./curve-set.js";
import { store } from "./store.js";
import { change, view } from "./view-state.js";
import { accuracy, bubble, bytes, el, loss, ofModel, rate, seconds, stateOf, states, swatch, whole } from "./words.js";

const parent = document.getElementById("overview");
const mostChosen = 24; // the server sends curves of so many runs at most
const mostAtFirst = 6;
let tooMany = false; // whether more than mostChosen were asked for

// fields are the columns of the table. A first click sorts numbers from large to small, except those with up.
let fields = [
  { key: "name", title: "run", of: (r) => r.name.toLowerCase(), up: true },
  { key: "state", title: "state", of: (r) => Object.keys(states).indexOf(r.state), up: true },
  {
    key: "steps",
    title: "steps",
    n: true,
    of: (r) => r.step,
    text: (r) => (r.total ? `${whole(r.step)} / ${whole(r.total)}` : whole(r.step)),
  },
  { key: "loss", title: "loss", n: true, up: true, of: (r) => r.loss, text: (r) => loss(r.loss) },
  { key: "held", title: "evaluation", n: true, up: true, of: (r) => r.held, text: (r) => loss(r.held) },
  { key: "accuracy", title: "accuracy", n: true, of: (r) => r.accuracy, text: (r) => accuracy(r.accuracy) },
  { key: "rate", title: "samples", n: true, of: (r) => r.rate, text: (r) => rate(r.rate) },
  { key: "step", title: "step", n: true, up: true, of: (r) => r.step_s, text: (r) => seconds(r.step_s) },
  { key: "bubble", title: "bubble", n: true, up: true, of: (r) => r.bubble, text: (r) => bubble(r.bubble) },
  { key: "time", title: "time", n: true, up: true, of: (r) => r.at || undefined, text: (r) => seconds(r.at) },
  { key: "peak", title: "memory", n: true, up: true, of: (r) => r.peak, text: (r) => bytes(r.peak) },
  { key: "model", title: "model", of: (r) => r.model, up: true },
  { key: "schedule", title: "schedule", of: (r) => r.schedule, up: true },
  { key: "workers", title: "workers", n: true, of: (r) => r.workers || undefined },
];

// reports keeps a column for each number that models report at an evaluation: the first mostReported by name.
const mostReported = 4;
function reports() {
  const names = new Set();
  for (const r of store.runs.values()) for (const name in r.reported ?? {}) names.add("reported " + name);
  const keys = [...names].sort().slice(0, mostReported);
  const now = fields.filter((f) => f.reported).map((f) => f.key);
  if (keys.join("\n") === now.join("\n")) return;
  const own = fields.filter((f) => !f.reported);
  const at = own.findIndex((f) => f.key === "accuracy") + 1;
  const columns = keys.map((key) => {
    const name = key.slice("reported ".length);
    const of = (r) => r.reported?.[name];
    const taken = own.some((f) => f.title === name); // the name of a column of millrace's own
    const title = taken ? name + " (model's)" : name;
    const says = `${name}, as the model says it`;
    return { key, title, says, n: true, reported: true, of, text: (r) => ofModel(name, of(r)) };
  });
  fields = [...own.slice(0, at), ...columns, ...own.slice(at)];
  rows.clear();
  buildHead();
}

let first = []; // runs that are drawn if the user has chosen none; a run stays in it as long as it exists

// chosen is the runs that are drawn: those in the address, or else the few that had sent news most recently.
export function chosen() {
  if (view.draw) return view.draw.filter((id) => store.runs.has(id)).slice(0, mostChosen);
  first = first.filter((id) => store.runs.has(id));
  if (first.length < mostAtFirst) {
    const others = [...store.runs.values()].filter((r) => !first.includes(r.id));
    others.sort((a, b) => (b.heard ?? 0) - (a.heard ?? 0));
    first.push(...others.slice(0, mostAtFirst - first.length).map((r) => r.id));
    first.sort();
  }
  return [...first];
}

function choose(id, on) {
  const now = chosen().filter((c) => c !== id);
  if (on && now.length === mostChosen) {
    tooMany = true;
    return change({});
  }
  tooMany = false;
  if (on) now.push(id);
  change({ draw: now });
}

const rows = new Map();
let table,
  head,
  body,
  find,
  note,
  drawCurves,
  legend,
  curves,
  plans,
  differences,
  at = "";

// listed is the runs of the table, in its order.
export function listed() {
  const field = fields.find((f) => f.key === view.sort) ?? fields[0];
  const words = view.find.toLowerCase().split(/\s+/).filter(Boolean);
  const called = names([...store.runs.keys()]); // as in the table: without the folders that all runs share
  const all = [...store.runs.values()].filter((r) => words.every((w) => called.get(r.id).toLowerCase().includes(w)));
  const known = (x) => x !== undefined && x !== null && x !== "";
  return all.sort((a, b) => {
    const x = field.of(a),
      y = field.of(b);
    if (known(x) !== known(y)) return known(x) ? -1 : 1; // unknown values come last in both directions
    const order = known(x) && x !== y ? (x < y ? -1 : 1) * (view.down ? -1 : 1) : 0;
    return order || (a.name < b.name ? -1 : 1);
  });
}

function buildHead() {
  for (const f of fields) {
    if (f.th) continue;
    const b = el("button", { type: "button", text: f.title, title: f.says });
    b.addEventListener("click", () => change({ sort: f.key, down: view.sort === f.key ? !view.down : !f.up }));
    f.th = el("th", { scope: "col", class: f.n ? "n" : "" }, b);
  }
  head.replaceChildren(...fields.map((f) => f.th));
}

function build() {
  find = el("input", { type: "search", "aria-label": "Look for runs by name", placeholder: "Find a run" });
  find.addEventListener("input", () => change({ find: find.value }));
  note = el("p", { class: "muted" });
  head = el("tr");
  buildHead();
  body = el("tbody");
  table = el("table", { class: "runs" }, el("thead", {}, head), body);
  const tools = curveTools();
  legend = el("ul", { class: "legend of-runs", "aria-label": "Runs that are drawn" });
  curves = el("div", { class: "charts" });
  drawCurves = curveSet(curves, tools);
  const section = (id, title, ...inner) =>
    el(
      "section",
      { "aria-labelledby": id },
      ...(inner.length > 1 && inner[0].className === "tools"
        ? [el("div", { class: "row" }, el("h2", { id, text: title }), inner[0]), ...inner.slice(1)]
        : [el("h2", { id, text: title }), ...inner]),
    );
  plans = section("plans-title", "Plans", el("div", { class: "plans" }));
  differences = section("differences-title", "Settings that differ", el("div", {}));
  parent.append(
    el(
      "section",
      { "aria-labelledby": "runs-title" },
      el("div", { class: "row" }, el("h2", { id: "runs-title", text: "Runs" }), el("div", { class: "tools" }, find)),
      note,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "runs-title" }, table),
    ),
    section("curves-title", "Curves", tools, legend, curves),
    plans,
    differences,
  );
}

function rowOf(r) {
  let row = rows.get(r.id);
  if (!row) {
    const box = el("input", { type: "checkbox", "aria-label": "Draw " + r.name });
    box.addEventListener("change", () => choose(r.id, box.checked));
    const link = el("a", { title: r.name, href: "#run=" + r.id });
    const text = el("bdi", { dir: "ltr" });
    link.append(text);
    link.addEventListener("click", (e) => {
      if (e.ctrlKey || e.metaKey || e.shiftKey || e.button !== 0) return;
      e.preventDefault();
      change({ run: r.id });
    });
    const line = el("span");
    const cells = fields.map((f) =>
      f.key === "name" ? el("th", { scope: "row" }, box, line, link) : el("td", { class: f.n ? "n" : "" }),
    );
    row = { tr: el("tr", {}, ...cells), cells, box, line, text, said: null };
    rows.set(r.id, row);
  }
  if (row.said !== r) {
    // a run with news is a new object, so a row whose object is the same needs no drawing
    row.said = r;
    fields.forEach((f, i) => {
      if (f.key === "name") return;
      if (f.key === "state")
        row.cells[i].replaceChildren(el("span", { class: "state " + r.state, text: stateOf(r) }));
      else {
        const x = f.of(r);
        row.cells[i].textContent = x === undefined || x === null || x === "" ? "–" : f.text ? f.text(r) : String(x);
      }
    });
  }
  return row;
}

export function drawOverview() {
  if (!table) build();
  reports();
  if (document.activeElement !== find) find.value = view.find;
  const all = listed(),
    drawn = chosen();
  const used = (f) =>
    f.key === "name" ||
    f.key === "state" ||
    all.some((r) => f.of(r) !== undefined && f.of(r) !== null && f.of(r) !== "");
  fields.forEach((f, i) => {
    f.shown = used(f);
    f.th.hidden = !f.shown;
    if (view.sort === f.key) f.th.setAttribute("aria-sort", view.down ? "descending" : "ascending");
    else f.th.removeAttribute("aria-sort");
    f.i = i;
  });
  const called = names([...store.runs.keys()]);
  const order = all.map((r) => {
    const row = rowOf(r),
      index = drawn.indexOf(r.id);
    const name = called.get(r.id);
    if (row.text.textContent !== name) row.text.textContent = name;
    row.box.checked = index >= 0;
    row.line.replaceChildren(...(index >= 0 ? [swatch(index)] : []));
    row.tr.classList.toggle("at", r.id === at);
    fields.forEach((f) => {
      row.cells[f.i].hidden = !f.shown;
    });
    return row.tr;
  });
  if (order.length !== body.children.length || order.some((tr, i) => body.children[i] !== tr))
    body.replaceChildren(...order);
  note.textContent =
    store.state === "connecting"
      ? ""
      : store.runs.size === 0
        ? "No run is here yet. One turns up as soon as its folder does."
        : all.length === 0
          ? "No run has such a name."
          : tooMany
            ? `${mostChosen} runs are drawn at most; untick one first.`
            : store.full > 0
              ? `There are more runs than the ${whole(store.full)} that are shown; serve fewer folders.`
              : "";
  note.hidden = note.textContent === "";
  table.hidden = all.length === 0;
  drawChosen(drawn);
}

// names shortens the runs' paths to the part in which they differ.
function names(ids) {
  const all = ids.map((id) => (store.runs.get(id)?.name ?? id).split("/"));
  let common = 0;
  while (all.length > 1 && all.every((p) => p.length > common + 1 && p[common] === all[0][common])) common++;
  return new Map(ids.map((id, i) => [id, (ids.length > 1 ? all[i].slice(common) : all[i].slice(-1)).join("/")]));
}

function drawChosen(ids) {
  const called = names(ids);
  const runs = ids.map((id, index) => ({ id, index, name: called.get(id), drawn: store.drawn.get(id) }));
  legend.replaceChildren(...runs.map((r) => el("li", {}, swatch(r.index), r.name)));
  curves.parentElement.hidden = !drawCurves(runs);
  drawPlans(runs);
  drawDifferences(runs);
}

// planStrip draws the stages of a plan side by side; a stage's width is its number of layers.
export function planStrip(plan) {
  const strip = el("div", { class: "layers" });
  for (const [i, s] of plan.stages.entries()) {
    const on = s.devices.length === 1 ? `worker ${s.devices[0]}` : `workers ${s.devices.join(", ")}`;
    const first = plan.layers?.[s.first_layer] ?? `layer ${s.first_layer}`,
      last = plan.layers?.[s.last_layer] ?? `layer ${s.last_layer}`;
    const what = s.first_layer === s.last_layer ? first : `${first} … ${last}`;
    const piece = el("span", { text: `${i}: ${what}`, title: `stage ${i}, ${on}: ${what}` });
    piece.style.flexGrow = s.last_layer - s.first_layer + 1;
    strip.append(piece);
  }
  return strip;
}

export function planWords(plan, predicted) {
  const n = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;
  const words = [
    n(plan.stages.length, "stage"),
    plan.schedule,
    `${n(plan.micro_batches, "micro-batch").replace(/hs$/, "hes")} of ${plan.micro_batch}`,
    `weights ${plan.weights}`,
  ];
  if (plan.pipelines) words.push(`${plan.pipelines} pipelines`);
  if (predicted) words.push(`predicted ${seconds(predicted.step_s)} a step, bubble ${bubble(predicted.bubble)}`);
  return words.join(" · ");
}

let saidPlans = "",
  saidDifferences = "";

function drawPlans(runs) {
  const have = runs.filter((r) => r.drawn?.details?.plan);
  plans.hidden = have.length === 0;
  const key = JSON.stringify(have.map((r) => [r.index, r.name, r.drawn.details.plan, r.drawn.details.predicted]));
  if (key === saidPlans) return;
  saidPlans = key;
  plans
    .querySelector(".plans")
    .replaceChildren(
      ...have.map((r) =>
        el(
          "div",
          { class: "of" },
          el("div", {}, swatch(r.index), el("b", { text: r.name })),
          planStrip(r.drawn.details.plan),
          el("div", { class: "muted", text: planWords(r.drawn.details.plan, r.drawn.details.predicted) }),
        ),
      ),
    );
}

// These settings say where a run writes and what it serves; they do not change its training.
const beside = new Set(["out", "overwrite", "metrics", "live", "token_file", "resume"]);

// Settings for which 0 means the same as leaving them out.
const zeroIsNone = new Set(["clip", "eval_every", "eval_rows", "save_every"]);

function drawDifferences(runs) {
  const have = runs.filter((r) => r.drawn?.details?.settings);
  differences.hidden = have.length < 2;
  const of = (r) => r.drawn.details.settings;
  const value = (r, k) => (zeroIsNone.has(k) && of(r)[k] === "0" ? "" : (of(r)[k] ?? ""));
  const key = JSON.stringify(have.map((r) => [r.index, r.name, of(r)]));
  if (key === saidDifferences || have.length < 2) return;
  saidDifferences = key;
  const all = [...new Set(have.flatMap((r) => Object.keys(of(r))))].filter((k) => !beside.has(k)).sort();
  const differ = all.filter((k) => new Set(have.map((r) => value(r, k))).size > 1);
  const inner = differences.lastElementChild;
  if (differ.length === 0) {
    inner.replaceChildren(el("p", { class: "muted", text: "None: these runs have the same settings." }));
    return;
  }
  inner.replaceChildren(
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings that differ" },
      el(
        "table",
        { class: "differences" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col", text: "setting" }),
            ...have.map((r) => el("th", { scope: "col" }, swatch(r.index), r.name)),
          ),
        ),
        el(
          "tbody",
          {},
          ...differ.map((k) =>
            el(
              "tr",
              {},
              el("th", { scope: "row", text: k }),
              ...have.map((r) => el("td", { text: value(r, k) || "–", class: value(r, k) ? "" : "none" })),
            ),
          ),
        ),
      ),
    ),
  );
}

// overviewKey does what a key does on this page; it returns false if the key does nothing.
export function overviewKey(key) {
  const all = listed();
  const i = all.findIndex((r) => r.id === at);
  const go = (to) => {
    at = all[Math.min(Math.max(0, to), all.length - 1)]?.id ?? "";
    drawOverview();
    rows.get(at)?.tr.scrollIntoView({ block: "nearest" });
  };
  switch (key) {
    case "j":
    case "ArrowDown":
      go(i + 1);
      return true;
    case "k":
    case "ArrowUp":
      go(i < 0 ? 0 : i - 1);
      return true;
    case " ":
      if (i >= 0) choose(at, !chosen().includes(at));
      return i >= 0;
    case "Enter":
      if (i >= 0) change({ run: at });
      return i >= 0;
    case "/":
      find.focus();
      return true;
  }
  return false;
}
