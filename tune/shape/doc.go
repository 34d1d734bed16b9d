// Package shape predicts plans of a fixed shape: so many replicas, stages, devices to a tensor-parallel group.
//
// In: a model of repeated blocks, a cluster of one device type with kernels (package profile/kernels), a Shape. Out: a
// Prediction: the step's time and what it is made of, and what a device of each stage holds. Refused: models without
// blocks, clusters of several device types, shapes that do not divide batch or devices. It starts no search of its own
// but Best, which tries shapes in the order of what they take at least; the search over plans of any form is package
// tune's.
//
// Planned takes any plan apart as shapes are, by simulating it without its sums and without its messages.
//
// Replicas are alike and the devices of a group are alike, so that one replica's pipeline of groups is simulated
// (package sim) and what joins replicas and groups is added in closed form: a step of thousands of devices costs what
// one of its stages does. With more than mostPlayed computations two steps of fewer micro-batches are simulated; the
// pipeline has settled between them, so that every further micro-batch takes as long.
//
// # Ranks
//
// As Megatron-LM numbers them: groups are innermost, then replicas, then stages. A group is on one innermost level
// where it fits; devices of one position in it, in all replicas, sum gradients; those of one position and replica in
// neighbouring stages send activations, each its 1/t of them (Narayanan et al., SC 2021, section 4.1).
//
// # The step
//
//	step = pipeline + gradients + tied + update + step_s
//
// pipeline is the simulated end of the last backward. Blocks that are computed again add their forward to the
// backward, or with selective recompute their scores' (Korthikanti et al., 2022); embedding, head and loss never are.
//
// gradients is the sum over the replicas: behind the step in full, overlapped as much of it as the last micro-batch's
// backward leaves over, whose part overlap of the device's kernels hides it. tied is the sum of a shared embedding's
// gradients over the first and last stage. update moves the optimizer's bytes, over dp where they are divided.
//
// # Who keeps what (Rajbhandari et al., ZeRO, SC 2020; Zhao et al., PyTorch FSDP, VLDB 2023)
//
//	none   everybody everything                          all-reduce
//	zero1  states over dp                                reduce-scatter, and gather of the weights
//	zero2  gradients too                                 the same, for every micro-batch
//	zero3  weights too                                   gather for each forward and backward, reduce-scatter for each
//
// Of zero3 a unit (an embedding, a block, a head) is gathered while the one before it computes: a unit takes the
// longer of its kernels and its collectives, and (1 - overlap) of the shorter.
//
// # What a device holds
//
// Parameters, gradients and states by precision (16 or 18 bytes a parameter in 16 bits with Adam) over t and, where
// divided, over dp; and at the fullest moment of its list of computations what its micro-batches in flight have saved,
// by package profile/kernels. A unit's input is saved by the unit in front, or received; a stage frees its output
// when it is sent (Korthikanti et al., appendix B). Under recompute a block in flight keeps its input, and one block's
// activations are there once.
package shape
