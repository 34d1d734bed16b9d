// Package record keeps what the Timeline of one process of a run is made of.
//
// In: what its workers executed, what they held, and the losses, as they come. Out: the process's part of
// every step once it stands, and a trace.Timeline with the events of the last steps and of those asked for.
// The caller guards a Recorder.
package record
