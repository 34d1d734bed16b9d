// Package links measures what a link between two workers does: its latency, and its bandwidth each way.
//
// In: the carriers of both, each in its own process or both in one. One side calls Lead, the other Answer,
// with edges of the same numbers and no frames of theirs before. Out: seconds, in the middle of many tries,
// and bytes a second, at the best of a few. Refused: nothing; a carrier that fails, or a context that ends,
// ends the side that has it. The other one waits until its own does, so that whoever has both gives them one.
//
// It takes about half a second, longer where a link is slow: as long as a few frames of frameBytes take on it.
// Nothing else should go over the link meanwhile, and nothing compute.
package links
