// Package sim runs a Program on a virtual clock.
//
// In: a lowered Program and what its instructions cost. Out: a trace.Timeline and
// a Summary: step time, busy time, bubble, peak bytes and peak activations of each
// worker. The same input gives the same bytes. It drives the same machine.Gate as
// run, so the two cannot disagree about who may start.
//
// Links queue first come, first served; a worker takes part in one all-reduce at a time, which
// begins within the backward that makes the last gradients, as in run; a transfer
// may occupy both of its devices;
// workers may share cores. Beside computing, a worker's host
// spends what a profile has measured on sends and receives. Memory follows the rules of the runtime:
// parameters, optimizer states, gradients from the first backward of a step to its update, what each
// micro-batch saved, messages on their way, and the peak inside each instruction. Not
// counted: the samples that the first and last stages read, and what collectives and transfers
// take from each other.
// Run has computations take what Costs says. What a machine does besides is Noise, which Run does not read:
// whoever drives it gives Options.Vary, which Noise makes. Expect predicts with all of Noise: it also lets each
// worker fall behind in turn, as cores of a shared machine do.
// Refused: costs that do not cover the Program's stages, a Gate that lets nobody
// move (the error lists who waits for what). It reads no wall clock and knows no engine.
package sim
