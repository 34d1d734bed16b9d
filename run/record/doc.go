// Package record keeps the data for the Timeline of one process of a run.
//
// Input: the instructions that the process's workers executed, the bytes that they held, and the losses. Output: the
// process's part of every step once it is complete, and a trace.Timeline with the events of the last steps and of
// requested ones. The caller guards a Recorder with a lock.
package record
