// Package place gives workers threads and processors, and changes the process they are in for as long as they
// are.
//
// In: how many workers compute at once, how many cores they share, and a Policy. Out: a Place, which each
// worker settles in on its own goroutine and which undoes everything when it is left. Without a Policy
// nothing is changed but that goroutines are locked to threads, which engines need: a library leaves its host
// process alone, and a program asks.
//
// Refused: a Binding that is none. Where the kernel refuses anything else, the workers go on without it.
//
// A Bell wakes a locked thread without a way through another.
package place
