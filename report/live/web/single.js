// The page of one run: its state, the measured step beside the predicted one, memory, curves and events.
import { curveSet, curveTools } from "./curve-set.js";
import { planStrip, planWords } from "./overview.js";
import { stepsView } from "./steps.js";
import { store } from "./store.js";
import { view } from "./view-state.js";
import { accuracy, bytes, el, leftWords, loss, moment, ofModel, seconds, stateOf, whole } from "./words.js";

const parent = document.getElementById("single");
let of = "",
  parts = null,
  said = {};

function build() {
  const section = (title, ...inner) => {
    const id = title.toLowerCase().replace(/\W+/g, "-") + "-of-run";
    const h2 = el("h2", { id, text: title });
    const tools = inner[0]?.classList?.contains("tools") ? inner.shift() : null;
    return el(
      "section",
      { "aria-labelledby": id, hidden: true },
      tools ? el("div", { class: "row" }, h2, tools) : h2,
      ...inner,
    );
  };
  const tools = curveTools(),
    charts = el("div", { class: "charts" });
  parts = {
    head: el("section", { "aria-label": "How the run does" }),
    notices: el("div", { class: "stack" }),
    cards: el("section", { class: "cards", "aria-label": "The main numbers" }),
    means: el("ul", { class: "legend means", "aria-label": "Colours of differences" }),
    step: section("One step", el("p", { class: "muted", hidden: true }), el("div")),
    memory: section("Memory of each worker", el("div")),
    curves: section("Curves", tools, charts),
    events: section("What has happened", el("ol", { class: "events", tabindex: "0" })),
    plan: section("Plan", el("div", { class: "plans" })),
    settings: section("Settings", el("dl", { class: "facts" })),
  };
  parts.drawCurves = curveSet(charts, tools);
  parts.drawSteps = stepsView(parts.step.lastElementChild);
  parent.replaceChildren(
    parts.head,
    parts.notices,
    parts.cards,
    parts.means,
    parts.step,
    parts.memory,
    parts.curves,
    parts.events,
    parts.plan,
    parts.settings,
  );
  said = {};
}

// once says whether `what` differs from the last call with this name.
function once(name, ...what) {
  const key = JSON.stringify(what);
  if (said[name] === key) return false;
  said[name] = key;
  return true;
}

export function drawSingle() {
  const anew = of !== view.run || !parts;
  if (anew) {
    of = view.run;
    build();
  }
  const r = store.runs.get(of),
    d = store.drawn.get(of);
  const known = r !== undefined;
  if (!known) {
    parts.head.replaceChildren(
      el("p", {
        text: store.runs.size > 0 ? "This run is not here, or not any more." : "Nothing is known of this run yet.",
      }),
    );
    return;
  }
  drawHead(r, d);
  drawNotices(r, d);
  drawCards(r, d);
  if (d) {
    if (anew || d.newSteps) {
      d.newSteps = false;
      parts.drawSteps(d.predicted, d.measured);
    }
    parts.step.hidden = !d.predicted && !d.measured;
    const none = parts.step.querySelector("p");
    none.hidden = !(d.predicted && !d.measured);
    none.textContent =
      r.state === "going"
        ? "The run has not written a step yet. It writes the first a few seconds behind its beginning, one " +
          "each two seconds while pages of train --live are watched, and one each 30 seconds otherwise."
        : "No step of this run was written; this is the predicted one.";
    drawMemory(d, !ended.has(r.state));
    parts.curves.hidden = !parts.drawCurves([{ id: r.id, name: r.name, index: 0, drawn: d }]);
    drawEvents(d);
    drawPlan(d);
    drawSettings(d);
  }
}

// left writes the time that the run has left: its own estimate, as on its terminal, less what has passed since. It
// writes nothing if the run is late, if the estimate is not known within a factor of 1.5, or below three seconds.
function left(r, late) {
  if (!r.left || late) return "";
  const gone = Math.max(0, Date.now() / 1000 + store.ahead - r.left[2]);
  const [least, most] = [r.left[0] - gone, r.left[1] - gone];
  return least > 0 && most <= 1.5 * 1.5 * least && least * most >= 3 * 3 ? leftWords(least, most) : "";
}

function drawHead(r, d) {
  const quiet = Math.max(0, Date.now() / 1000 + store.ahead - (r.heard ?? 0));
  const words = [r.total ? `step ${whole(r.step)} of ${whole(r.total)}` : `${whole(r.step)} steps`];
  if (r.samples) words.push(`${whole(r.samples)} samples`);
  if (r.at) words.push(seconds(r.at));
  const late =
    r.state === "silent" || (r.state === "going" && !r.due && r.step_s && quiet > Math.max(3, 3 * r.step_s))
      ? ` · nothing new for ${seconds(quiet)}`
      : "";
  const rest = left(r, late);
  if (rest) words.push(rest);
  const text = words.join(" · ") + late;
  const over = d?.numbers?.over ?? "";
  if (!once("head", r.state, text, over)) return;
  parts.head.replaceChildren(
    el(
      "div",
      { class: "row" },
      el("div", {}, el("span", { class: "state " + r.state, text: stateOf(r) }), " ", el("span", { text })),
      ...(d?.details?.report
        ? [el("span", { class: "muted path", text: "report: " + d.details.path + "/report.html" })]
        : []),
    ),
  );
  if (over) parts.head.append(el("p", { class: "muted", text: over }));
  if (r.total) {
    const done = el("i"),
      bar = el(
        "div",
        {
          class: "progress",
          role: "progressbar",
          "aria-valuenow": r.step,
          "aria-valuemin": 0,
          "aria-valuemax": r.total,
          "aria-label": "Steps done",
        },
        done,
      );
    done.style.width = Math.min(100, (100 * r.step) / r.total) + "%";
    parts.head.append(bar);
  }
}

function drawNotices(r, d) {
  const details = d?.details,
    all = [];
  const events = details?.events ?? [];
  const last = events[events.length - 1];
  const waiting = last?.kind === "waiting" && last.step === r.step && ["going", "silent", "begun"].includes(r.state);
  if (!once("notices", r.state, waiting, details?.cause, details?.wrong, last, d?.last?.stragglers)) return;
  const notice = (bad, title, text, lines) =>
    el(
      "section",
      { class: "notice" + (bad ? " bad" : ""), role: "status" },
      el("h2", { text: title }),
      el("p", { text }),
      ...(lines?.length ? [el("ul", {}, ...lines.map((l) => el("li", { text: l })))] : []),
    );
  if (waiting) all.push(notice(true, "Waiting", last.text + ".", last.lines));
  if (r.state === "failed")
    all.push(notice(true, "Failed", details?.cause || (last?.kind === "failed" ? last.text : "")));
  if (r.state === "silent" && !waiting) {
    all.push(
      notice(
        false,
        "Silent",
        `The last sign of this run was at ${moment(r.heard * 1000)}, after step ${whole(r.step)}` +
          (r.total ? ` of ${whole(r.total)}` : "") +
          ". It has not said that it ended: its process may have been killed, or its host cannot be reached.",
      ),
    );
  }
  const slow = Object.entries(d?.last?.stragglers ?? {});
  if (slow.length > 0 && r.state === "going") {
    all.push(
      notice(
        false,
        slow.length === 1 ? "Straggler" : "Stragglers",
        slow
          .map(([w, times]) => `worker ${w} computes ${times.toFixed(2)} times as long as its profile says`)
          .join(", ") + ".",
      ),
    );
  }
  for (const text of details?.wrong ?? []) all.push(notice(false, "A file is not as it should be", text));
  parts.notices.replaceChildren(...all);
  parts.notices.hidden = all.length === 0;
}

function drawCards(r, d) {
  const shown = [...(d?.numbers?.cards ?? [])];
  if (r.loss !== undefined)
    shown.push({
      name: "loss",
      value: loss(r.loss),
      was: r.held === undefined ? "of the last step" : "evaluation " + loss(r.held),
    });
  if (r.accuracy !== undefined)
    shown.push({ name: "evaluation accuracy", value: accuracy(r.accuracy), was: "at the last evaluation" });
  for (const [name, value] of Object.entries(r.reported ?? {}).sort())
    shown.push({
      name,
      value: value === null ? "–" : ofModel(name, value),
      was: "said by the model at the last evaluation",
    });
  parts.cards.hidden = shown.length === 0;
  const means = d?.numbers?.means ?? [];
  parts.means.hidden = means.length === 0;
  if (!once("cards", shown, means)) return;
  parts.means.replaceChildren(
    ...means.map((m) => el("li", {}, el("span", { class: "off" + m.off, text: m.colour }), " " + m.text)),
  );
  parts.cards.replaceChildren(
    ...shown.map((c) =>
      el(
        "div",
        { class: "card" },
        el("div", { class: "name", text: c.name }),
        el("div", { class: "value", text: c.value }),
        el(
          "div",
          { class: "was", text: c.was + " " },
          ...(c.difference ? [el("span", { class: `difference off${c.off}`, text: c.difference })] : []),
        ),
      ),
    ),
  );
}

// limitOf is the setting memory_limit in bytes, such as "512MiB"; undefined if there is none.
function limitOf(d) {
  const m = /^([\d.]+)\s*([KMGT]?)(i?)B$/i.exec(d.details?.settings?.memory_limit ?? "");
  return m ? +m[1] * (m[3] ? 1024 : 1000) ** " KMGT".indexOf(m[2].toUpperCase() || " ") : undefined;
}

// ended is the states in which a run's processes have ended and use no memory.
const ended = new Set(["finished", "stopped", "failed"]);

function drawMemory(d, going) {
  const peak = (d.numbers?.memory ?? []).map((m) => m.measured),
    live = d.last?.live ?? [],
    predicted = (d.numbers?.memory ?? []).map((m) => m.predicted);
  const most = d.details?.predicted?.at_most_bytes ?? [],
    limit = limitOf(d);
  const workers = peak.length;
  parts.memory.hidden = workers === 0;
  const labels = (d.predicted ?? d.measured)?.stage_labels ?? [];
  if (workers === 0 || !once("memory", going, peak, live, predicted, limit, labels)) return;
  const top = Math.max(limit ?? 0, ...[...peak, ...predicted].map((b) => b ?? 0)) * 1.02 || 1;
  const bar = (name, b) => {
    const i = el("i", { class: name });
    if (name === "mark" || name === "limit") i.style.left = `calc(${(100 * b) / top}% - 1px)`;
    else i.style.width = (100 * b) / top + "%";
    return i;
  };
  const rows = Array.from({ length: workers }, (_, w) => {
    const words = [];
    if (going && live[w] !== undefined) words.push(`now ${bytes(live[w])}`);
    if (peak[w] !== undefined) words.push(`peak ${bytes(peak[w])}`);
    if (predicted[w] !== undefined) words.push(`predicted ${bytes(predicted[w])}`);
    if (most[w] >= (predicted[w] ?? 0)) words.push(`at most ${bytes(most[w])}`);
    return el(
      "div",
      { class: "memory" },
      el("div", {}, `worker ${w}`, el("span", { class: "muted", text: labels[w] ? "  " + labels[w] : "" })),
      el(
        "div",
        { class: "track", role: "img", "aria-label": words.join(", ") },
        ...(peak[w] ? [bar("peak", peak[w])] : []),
        ...(going && live[w] ? [bar("live", live[w])] : []),
        ...(predicted[w] ? [bar("mark", predicted[w])] : []),
        ...(limit ? [bar("limit", limit)] : []),
      ),
      el("div", { class: "says", text: words.join(" · ") }),
    );
  });
  const key = (name, text) => el("li", {}, el("i", { class: name }), text);
  parts.memory.lastElementChild.replaceChildren(
    el(
      "ul",
      { class: "legend", "aria-label": "Colours" },
      ...(going ? [key("live", "held now")] : []),
      key("peak", going ? "peak so far" : "peak"),
      ...(predicted.some(Boolean) ? [key("mark", "predicted peak")] : []),
      ...(limit ? [key("limit", "limit " + bytes(limit))] : []),
    ),
    el("div", { class: "bars-of-memory" }, ...rows),
  );
}

const kinds = {
  begun: "begin",
  checkpoint: "checkpoint",
  waiting: "waiting",
  pace: "pace",
  warning: "warning",
  finished: "finished",
  stopped: "stopped",
  failed: "failed",
};

function drawEvents(d) {
  const events = d.details?.events ?? [];
  parts.events.hidden = events.length === 0;
  if (!once("events", events)) return;
  parts.events.lastElementChild.replaceChildren(
    ...events.toReversed().map((e) => {
      return el(
        "li",
        {},
        el("time", { class: "muted", datetime: e.time, text: moment(e.time) }),
        el("span", { class: "kind-" + e.kind, text: kinds[e.kind] ?? e.kind }),
        el(
          "div",
          { class: "text", text: e.text },
          ...(e.lines?.length ? [el("ul", {}, ...e.lines.map((l) => el("li", { text: l })))] : []),
        ),
      );
    }),
  );
}

function drawPlan(d) {
  const p = d.details?.plan;
  parts.plan.hidden = !p;
  if (!p || !once("plan", p)) return;
  parts.plan.lastElementChild.replaceChildren(
    planStrip(p),
    el("p", { class: "muted", text: planWords(p, d.details.predicted) }),
    ...(p.why?.length
      ? [
          el(
            "details",
            {},
            el("summary", { text: "Why this plan, and what it was compared with" }),
            el("ul", { class: "why" }, ...p.why.map((w) => el("li", { text: w }))),
          ),
        ]
      : []),
  );
}

function drawSettings(d) {
  const all = Object.entries(d.details?.settings ?? {}).sort();
  parts.settings.hidden = all.length === 0;
  if (!once("settings", all)) return;
  parts.settings.lastElementChild.replaceChildren(
    ...all.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))),
  );
}
