// Package report draws what a plan promised and what a run did.
//
// In: a Plan, a simulated and a measured Timeline, losses and evaluations, any of
// them missing. Out:
//
//   - Terminal: a summary that reads well at 80 columns;
//   - HTML: one page that needs nothing else, with both steps on one axis;
//   - Perfetto and ChromeJSON: the Timeline for other people's viewers;
//   - Grid: a schedule as papers draw it, as SVG or a page, a row for each worker;
//   - Table: rows as aligned text or as Markdown.
//
// Refused: Timelines that trace.Validate refuses, Inputs with nothing to draw.
// It starts no run, asks no simulator and opens no connection. What a run says of itself while it lasts is
// report/metrics.
package report
