// What the page knows: all runs, and the curves of those that are drawn. The server limits how long the curves are.

export const store = { runs: new Map(), drawn: new Map(), ahead: 0, state: "connecting", full: 0 };

const listeners = [];
export const onNews = (f) => listeners.push(f);
const tell = (what) => listeners.forEach((f) => f(what));

let source = null,
  asked = { draw: [], show: "" },
  last = "",
  away = 0;

// ask makes the server send news of all runs, and the curves of the runs to draw. It drops the curves of other runs.
export function ask(draw, show) {
  const key = (a) => a.draw.join() + " " + a.show;
  const next = { draw: [...new Set(show ? [show, ...draw] : draw)].sort(), show };
  if (source && key(next) === key(asked)) return;
  asked = next;
  for (const id of store.drawn.keys()) if (!asked.draw.includes(id)) store.drawn.delete(id);
  const [of, ...has] = last.split(" "); // of dropped runs the page has nothing
  last = [of, ...has.filter((run) => store.drawn.has(run.split(".")[0]))].join(" ");
  connect();
}

function connect() {
  source?.close();
  const query = new URLSearchParams({ draw: asked.draw.join(), show: asked.show, have: last });
  source = new EventSource("stream?" + query);
  source.onopen = () => state("up");
  source.onerror = (e) => {
    state("down");
    if (e.target.readyState === EventSource.CLOSED) setTimeout(again, 5000, e.target); // the browser gave up
  };
  source.onmessage = (e) => {
    last = e.lastEventId;
    state("up");
    take(JSON.parse(e.data));
  };
  source.addEventListener("end", () => {
    source.close();
    state("over");
  });
}

// again connects once more after the server has refused. If the token must be given anew, it reloads the page, so that
// the browser asks the user for it.
async function again(refused) {
  if (refused !== source || store.state === "over") return;
  const page = await fetch(location.pathname).catch(() => null);
  if (page?.status === 401) location.reload();
  else if (refused === source) connect();
}

function state(s) {
  if (s === store.state) return;
  store.state = s;
  tell({ link: true });
}

// A page that has been hidden for a minute closes its stream, and opens it again when it is shown.
document.addEventListener("visibilitychange", () => {
  clearTimeout(away);
  if (document.visibilityState === "hidden") {
    away = setTimeout(() => source?.close(), 60000);
  } else if (source?.readyState === EventSource.CLOSED && store.state !== "over") {
    connect();
  }
});

function take(news) {
  store.ahead = news.now - Date.now() / 1000;
  if (news.all) store.runs.clear();
  store.full = news.full ?? 0;
  for (const r of news.runs ?? []) store.runs.set(r.id, r);
  for (const d of news.drawn ?? []) {
    let has = store.drawn.get(d.id);
    if (!has || d.fresh) store.drawn.set(d.id, (has = { id: d.id, details: has?.details, steps: null, held: null }));
    if (d.steps) has.steps = joined(has.steps, d.steps);
    if (d.held) has.held = joined(has.held, d.held);
    if (d.last) has.last = d.last;
    if (d.numbers) has.numbers = d.numbers;
    if (d.predicted !== undefined) has.predicted = d.predicted;
    if (d.measured !== undefined) has.measured = d.measured;
    has.newSteps = d.predicted !== undefined || d.measured !== undefined || has.newSteps;
  }
  for (const d of news.details ?? []) {
    const has = store.drawn.get(d.id);
    if (has) has.details = d;
  }
  tell({
    runs: news.runs?.length > 0 || news.all,
    drawn: (news.drawn ?? []).map((d) => d.id),
    details: (news.details ?? []).map((d) => d.id),
  });
}

// joined is a series with what was sent: from the part sent.from on, the new parts replace what was there.
function joined(has, sent) {
  const columns = ["step", "at", "samples"];
  sent.low ??= sent.mean;
  sent.top ??= sent.mean;
  if (!has || sent.from === 0) return sent;
  for (const c of columns) {
    has[c].length = sent.from;
    for (const v of sent[c]) has[c].push(v);
  }
  const same = sent.low === sent.mean && has.low === has.mean;
  if (!same && has.low === has.mean) {
    has.low = has.mean.map((c) => c && c.slice());
    has.top = has.mean.map((c) => c && c.slice());
  }
  for (const name of same ? ["mean"] : ["mean", "low", "top"]) {
    sent[name].forEach((column, i) => {
      has[name][i] ??= column && Array(sent.from).fill(null);
      if (!has[name][i]) return;
      has[name][i].length = sent.from;
      for (const v of column ?? Array(sent.step.length).fill(null)) has[name][i].push(v);
    });
  }
  has.each = sent.each;
  return has;
}
