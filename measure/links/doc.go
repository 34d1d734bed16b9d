// Package links measures a link between two workers: its latency, and its bandwidth in each direction.
//
// Input: the carriers of both workers, in one process or in two. One side calls Lead, the other Answer, with edges
// of the same numbers and no earlier frames on them. Output: the latency in seconds, the median of many tries, and
// the bandwidth in bytes per second, the best of a few. A failing carrier or an ended context ends its own side. The
// other side waits for its own context, so give both the same one.
//
// A measurement takes about half a second. On a slow link it takes as long as a few frames of frameBytes. Nothing
// else should use the link or compute meanwhile.
package links
