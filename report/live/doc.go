// Package live serves pages of runs: one running run, and several runs side by side.
//
// In: folders of runs, or folders with such folders, in which new ones may appear. Everything is read from the files in
// them, which docs/runs.md lists. So the page of a run is the same whether it runs in this process or another, or has
// ended. Out: an http.Handler. Refused: paths that do not exist or are files. A faulty file gives a sentence on the
// page, and does not hide the rest of the run.
//
// A Shelf holds the runs. It reads files only while a page is open. Runs that no open page draws are read less often. A
// Follower continues reading what a run appends, waits for incomplete lines, and starts again if a file was replaced.
//
// Memory for a run does not grow with its steps. A full series merges neighbours, and keeps the mean, the minimum and
// the maximum of each part. A page keeps the same series.
//
// A page opens one stream of server-sent events. An event's ID is a cursor: it says what the page has once it has read
// the event. The page's next event is made from that cursor, after the page has taken the previous event. So nothing
// waits for a page, and another stream can continue from the cursor (Last-Event-ID). A page that takes nothing for ten
// seconds is disconnected, and connects again.
//
// The caller serves a Shelf's Handler to those who may see the runs (cmd/internal/serving), and closes the Shelf.
package live
