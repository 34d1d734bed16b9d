// Puts the live pages together: the view, the stream from the server, the keys.
import { redraws } from "./lines.js";
import { chosen, drawOverview, overviewKey } from "./overview.js";
import { drawSingle } from "./single.js";
import { ask, onNews, store } from "./store.js";
import { startTheme } from "./theme.js";
import { change, onView, readView, view } from "./view-state.js";
import { axes } from "./words.js";

const find = (id) => document.getElementById(id);
const links = { connecting: "connecting", up: "live", down: "not reached, trying again", over: "the server has ended" };

let waiting = false;

// later draws once in the next frame, however much has changed until then.
function later() {
  if (!waiting) requestAnimationFrame(draw);
  waiting = true;
}

function draw() {
  const began = performance.now();
  waiting = false;
  const alone = view.run !== "",
    run = store.runs.get(view.run);
  find("overview").hidden = alone;
  find("single").hidden = !alone;
  find("crumb").hidden = !alone || (store.runs.size < 2 && run !== undefined);
  const title = alone ? (run?.name ?? view.run) : "Runs";
  if (find("title").textContent !== title) find("title").textContent = title;
  document.title = (alone ? title : `${store.runs.size} runs`) + " – millrace";
  find("subtitle").textContent =
    alone && run
      ? [run.model, run.schedule, run.workers && `${run.workers} worker${run.workers === 1 ? "" : "s"}`]
          .filter(Boolean)
          .join(" · ")
      : "";
  find("subtitle").hidden = find("subtitle").textContent === "";
  find("link").textContent = links[store.state];
  find("link").className = "link muted " + store.state;
  if (alone) drawSingle();
  else drawOverview();
  ask(alone ? [] : chosen(), view.run);
  redraws.page = performance.now() - began;
}

onView(later);
onNews(({ runs }) => {
  // If there is only one run, its page is shown first.
  if (runs && store.runs.size === 1 && view.run === "" && location.hash.replace(/^#(theme=\w+)?/, "") === "") {
    history.replaceState(null, "", "#run=" + store.runs.keys().next().value);
    readView();
  }
  later();
});
find("all-runs").addEventListener("click", (e) => {
  e.preventDefault();
  change({ run: "" });
});
find("skip").addEventListener("click", (e) => {
  e.preventDefault();
  find("main").focus();
});

function help() {
  find("help").hidden = !find("help").hidden;
  find("keys").setAttribute("aria-expanded", !find("help").hidden);
}
find("keys").addEventListener("click", help);

addEventListener("keydown", (e) => {
  const typing = e.target.matches?.("input[type=search], select");
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (typing) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const own = e.target.matches?.("a, button, input, canvas, summary");
  const key = e.key.length === 1 ? e.key.toLowerCase() : e.key;
  let done = true;
  if (key === "?") help();
  else if (key === "x") change({ x: Object.keys(axes)[(Object.keys(axes).indexOf(view.x) + 1) % 3] });
  else if (key === "l") change({ log: !view.log });
  else if (key === "Escape" && !e.target.matches?.("canvas")) change({ run: "" });
  else if (view.run === "" && !(own && ["Enter", " ", "ArrowUp", "ArrowDown"].includes(e.key))) done = overviewKey(key);
  else done = false;
  if (done) e.preventDefault();
});

// Draw every second, so that "nothing new for ..." and the time left go on without news.
setInterval(() => view.run !== "" && document.visibilityState === "visible" && later(), 1000);

startTheme();
readView();
draw();
