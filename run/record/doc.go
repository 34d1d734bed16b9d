// Package record keeps what a run's Timeline is made of.
//
// In: what workers executed, what they held, and the losses, as they come. Out: a trace.Timeline with all of the
// last steps and of those asked for, sums and marks of every step. The caller guards a Recorder.
package record
