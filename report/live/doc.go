// Package live serves pages of runs: one run as it goes on, and runs side by side.
//
// In: folders of runs, or folders that have such folders, in which new ones turn up. All that is shown is read from the
// files in them, which docs/runs.md lists, so that a page of a run that goes on in another process is the same as that
// of one in this process, and as that of one that has ended. Out: an http.Handler. Refused: paths that are not there.
// A file that is not what its name says is a sentence on the page, and nothing else of the run is missing for it.
//
// A Shelf has the runs. It reads files while somebody looks, and nothing otherwise; who asks for one run has the others
// looked at now and then. A Follower reads on in what a run appends to, over lines that are not whole yet, and begins
// anew where a file was replaced.
//
// What is kept of a run does not grow with its steps: a series puts neighbours together once it is full, and keeps
// the mean, the least and the greatest of each part. So does what a page keeps, which is the same series.
//
// A page asks for one stream of server-sent events. An event's ID says what the page then has: a cursor, from which
// another stream goes on (Last-Event-ID), and from which this one does, too. Nothing waits for a page: what it is sent
// next is made, from its cursor, when it has taken what was sent before. A page that takes nothing for ten seconds is
// cut off, and asks again.
//
// Whoever drives a Shelf serves its Handler to those who may see the runs (cmd/internal/serving), and closes it.
package live
