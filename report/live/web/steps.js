// The last traced step and the predicted one, drawn as in the report.
import { makeTimeline } from "./timeline.js";
import { el } from "./words.js";

// stepsView adds the drawing to a parent. Its set takes the data of the predicted and of the measured steps, each as
// report.StepData or null. While the user looks at a box or gap, the step stays until the user asks for the next one.
export function stepsView(parent) {
  const canvas = el("canvas", {
    tabindex: "0",
    role: "application",
    class: "step-canvas",
    "aria-label":
      "Timeline of the " +
      "predicted and the measured step. Arrow keys go from box to box, plus and minus zoom, A and D pan, 0 shows all.",
  });
  canvas.id = "timeline";
  const tip = el("div", { class: "tip", hidden: true }),
    details = el("div", { class: "details", role: "status" });
  const around = el("div", { class: "stage" }, canvas, tip),
    legend = el("ul", { class: "legend", "aria-label": "Colours" });
  const choose = el("select", { "aria-label": "Measured step" });
  const held = el("button", { type: "button", text: "Go on", hidden: true });
  const button = (text, label, act) => {
    const b = el("button", { type: "button", text, [text.length > 1 ? "title" : "aria-label"]: label });
    b.addEventListener("click", act);
    return b;
  };
  let data = null,
    shown = 0,
    later = null;
  const timeline = makeTimeline({
    canvas,
    around,
    tip,
    details,
    cleared: () => {
      const goes = later !== null;
      if (goes) take(later);
      return goes;
    },
  });
  const view = timeline.view;
  const tools = el(
    "div",
    { class: "tools" },
    choose,
    held,
    button("+", "Zoom in", () => view.zoom(0.6, view.width / 2)),
    button("−", "Zoom out", () => view.zoom(1 / 0.6, view.width / 2)),
    button("Fit", "Show the whole step", () => view.fit()),
  );
  const texts = el("div", { class: "muted" });
  parent.append(tools, legend, texts, around, details);

  // show draws a step. The part of the time axis that is shown stays, unless it was all of the previous step.
  const show = () => {
    paintLegend(timeline.show(data, shown, true));
    texts.replaceChildren(
      ...[["Predicted", data.predicted[0]], ["Measured", data.measured[shown]]]
        .filter(([, panel]) => panel?.text)
        .map(([side, panel]) => el("p", { text: `${side}: ${panel.text}` })),
    );
  };
  const paintLegend = (steps) => {
    const kinds = new Set(steps.flatMap((s) => s.boxes.map((b) => ({ RF: "SF", RB: "SB" })[b.kind] ?? b.kind)));
    const causes = new Set(steps.flatMap((s) => s.rows.flatMap((r) => r.gaps.map((g) => g.cause))));
    const item = (name, text) => el("li", {}, el("i", { class: name }), text);
    legend.replaceChildren(
      ...data.kinds.filter((k) => kinds.has(k.name)).map((k) => item("k-" + k.name, `${k.name} ${k.label}`)),
      ...(steps.some((s) => s.boxes.some((b) => b.near !== 0)) ? [item("k-F near", "faint: of a step beside it")] : []),
      ...data.causes.filter((_, i) => causes.has(i)).map((c) => item("c-" + c.name, c.label)),
    );
  };
  const take = (next) => {
    later = null;
    held.hidden = true;
    data = next;
    shown = Math.min(shown, Math.max(0, data.measured.length - 1));
    choose.hidden = data.measured.length < 2;
    choose.replaceChildren(...data.measured.map((panel, i) => new Option(panel.name, i, false, i === shown)));
    show();
  };
  held.addEventListener("click", () => later && take(later));
  choose.addEventListener("change", () => {
    shown = +choose.value;
    show();
  });

  return (predicted, measured) => {
    const of = measured ?? predicted;
    parent.hidden = !of;
    if (!of) return;
    const next = { ...of, predicted: predicted?.predicted ?? [], measured: measured?.measured ?? [] };
    if (predicted) {
      // take the plan's names where the measured timeline has none
      next.stage_labels = of.stage_labels.map((l, i) => l || predicted.stage_labels[i] || "");
      if (next.groups.length === 0) next.groups = predicted.groups;
    }
    if (data && (view.selected || view.hovered)) {
      // the user looks at a box or gap of the step that is shown
      later = next;
      held.hidden = false;
      held.textContent = `Go on to ${next.measured[0]?.name ?? "the next step"}`;
      return;
    }
    take(next);
  };
}
