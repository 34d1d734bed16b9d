// Package sim runs a Program on a virtual clock.
//
// Input: a lowered Program and what its instructions cost. Output: a trace.Timeline and a Summary: step time and
// bubble, and each worker's busy time, peak bytes and peak activations. Equal inputs give equal outputs. sim uses the
// same machine.Gate as run, so the two cannot disagree about who may start.
//
// Links queue first come, first served. If a level of the cluster has Contention, messages and sums of gradients that
// use the same port at the same time share its rate (Ports). A worker takes part in one all-reduce at a time, which may
// begin within the backward that makes the last gradients, as in run. A transfer may occupy both of its devices.
// Workers may share cores. Besides computing, a worker's host spends time on sends and receives, as much as a profile
// has measured. Memory follows the rules of the runtime: parameters, optimizer states, gradients from the first
// backward of a step to its update, what each micro-batch saved, the model inputs it reads, messages in flight, and the
// peak inside each instruction. Collectives and transfers do not slow each other down if no level has contention.
// Gathers of weights, collectives inside computations, and sums of tied gradients and of the norm share no ports.
//
// In Run, computations take the times in Costs. Noise is how a real machine deviates from them. Run does not read it,
// but applies Options.Vary, which Noise.Vary makes. Expect also lets each worker fall behind in turn, as cores of a
// shared machine do.
//
// Run returns an error if the costs do not cover the Program's stages or are not valid numbers. It also returns an
// error if the Gate lets no worker start; the error then lists who waits for what. sim reads no wall clock and does not
// depend on an engine.
package sim
