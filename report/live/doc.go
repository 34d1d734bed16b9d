// Package live serves pages of runs: one running run, and several runs side by side.
//
// In: folders of runs, and folders that contain such folders. New runs may appear there at any time. Everything is read
// from the files that docs/runs.md lists. So the page of a run is the same whether the run is in this process, is in
// another, or has ended. Out: an http.Handler. Refused: paths that do not exist or are files. If a file is faulty, the
// page says so in a sentence and still shows the rest of the run.
//
// A Shelf holds the runs. It reads files only while a page is open, and less often if no open page draws the run. A
// Follower continues reading what a run appends, waits for incomplete lines, and starts again if a file was replaced.
//
// Memory for a run does not grow with its steps. If a series is full, it merges neighbouring parts, and keeps the mean,
// the minimum and the maximum of each part. A page keeps the same series.
//
// A page opens one stream of server-sent events. The ID of an event is a cursor, which says what data a page has after
// it has read the event. The stream makes its next event from this cursor, and only after the page has read the
// previous event. So nothing waits for a page, and another stream can continue from the cursor (Last-Event-ID). A page
// that reads nothing for ten seconds is disconnected, and connects again.
//
// The caller serves a Shelf's Handler to those who may see the runs (cmd/internal/serving), and closes the Shelf.
package live
