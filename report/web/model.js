// The data of the page, prepared for drawing: a step has a row for each worker, with boxes and gaps sorted by time.

// minibatchKinds is the kinds of instruction whose number is that of a minibatch, not of a micro-batch.
export const minibatchKinds = new Set(["AR", "TG", "GN", "U", "PV", "CK", "DR", "SG", "RG", "SW", "RW", "UR"]);

// fieldsOf parses an instruction's text: [p<pipeline>/]<stage><kind><micro>[@r<replica>].
export function fieldsOf(text) {
  const m = /^(?:p(\d+)\/)?(\d+)([A-Z]+)(\d+)(?:@r(\d+))?$/.exec(text);
  return m ? { pipeline: +(m[1] ?? 0), stage: +m[2], kind: m[3], micro: +m[4], replica: +(m[5] ?? 0) }
    : { pipeline: 0, stage: 0, kind: "", micro: 0, replica: 0 };
}

// within is the number of a micro-batch within its own step, from 0 on. number counts from the first micro-batch of the
// step that is shown: it is below 0 for an earlier step and micros or more for a later one.
const within = (number, micros) => (micros > 1 ? ((number % micros) + micros) % micros : number);

const versionText = (v) => (v < 0 ? "w−" + -v : "w" + v);

// stepModel makes a step from a panel of the data. side is "predicted" or "measured".
export function stepModel(panel, side) {
  const ev = panel.events;
  const boxes = ev.text.map((text, i) => {
    const f = fieldsOf(text);
    return { id: i, text, ...f, worker: ev.worker[i], compute: ev.compute[i] === 1,
      start: ev.start[i], end: ev.start[i] + ev.length[i], bytes: ev.bytes[i], shade: ev.shade[i],
      number: ev.number[i], near: ev.near[i], within: within(ev.number[i], panel.micros),
      version: ev.version?.[i] < 1 << 30 ? ev.version[i] : null, weights: null, gap: null, twin: "", side };
  });
  const own = boxes.some((b) => b.version !== null && b.pipeline > 0); // whether each pipeline has its own weights
  for (const b of boxes) if (b.version !== null) b.weights = (own ? `p${b.pipeline} ` : "") + versionText(b.version);
  // A box's twin is the same instruction in the other step. Ids differ between steps, but number counts from each
  // step's first micro-batch.
  const byTwin = new Map();
  for (const b of boxes) {
    b.twin = `${b.worker} ${b.pipeline} ${b.stage} ${b.kind} ${b.number} ${b.replica}`;
    byTwin.set(b.twin, b);
  }
  const rows = Array.from({ length: panel.workers }, (_, worker) => ({ worker, compute: [], comm: [[]], gaps: [] }));
  for (const b of boxes) if (b.compute) rows[b.worker].compute.push(b);
  for (const row of rows) row.compute.sort((a, b) => a.start - b.start);
  const inTime = boxes.filter((b) => !b.compute).sort((a, b) => a.start - b.start);
  for (const b of inTime) placeOnLane(rows[b.worker].comm, b);
  const g = panel.gaps;
  g.worker.forEach((worker, i) => {
    const gap = { worker, start: g.start[i], end: g.start[i] + g.length[i], cause: g.cause[i],
      before: g.before[i] < 0 ? null : boxes[g.before[i]], blocker: g.blocker[i] < 0 ? null : boxes[g.blocker[i]],
      why: g.why[i], side };
    if (gap.before) gap.before.gap = gap;
    rows[worker].gaps.push(gap);
  });
  for (const row of rows) row.gaps.sort((a, b) => a.start - b.start);
  return { side, name: panel.name, took: panel.took, text: panel.text, before: panel.before, step: panel.step,
    micros: panel.micros, end: panel.end, rows, boxes, byTwin };
}

// placeOnLane puts transfers that overlap in time on lanes below one another, on three lanes at most.
function placeOnLane(lanes, box) {
  let lane = lanes.findIndex((l) => l.length === 0 || l[l.length - 1].end <= box.start);
  if (lane < 0) lane = lanes.length < 3 ? lanes.push([]) - 1 : lanes.length - 1;
  lanes[lane].push(box);
}

// firstAfter is the index of the first item that ends after t; items are sorted by time.
export function firstAfter(items, t) {
  let low = 0, high = items.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (items[mid].end > t) high = mid;
    else low = mid + 1;
  }
  return low;
}
