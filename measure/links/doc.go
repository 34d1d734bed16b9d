// Package links measures a link between two workers: its latency, and its bandwidth in each direction.
//
// Input: the carriers of both workers, in one process or in two. One side calls Lead, the other Answer. Both must use
// the same edge numbers, on which no frame has been sent yet. Output: the latency in seconds, which is the median of
// many tries, and the bandwidth in bytes per second, which is that of the fastest try. If one side's carrier fails or
// its context ends, that side returns an error. The other side waits until its own context ends, so let both contexts
// end together.
//
// A measurement takes about half a second. On a slow link it takes as long as sending a few frames of frameBytes.
// Nothing else should use the link or compute meanwhile.
package links
