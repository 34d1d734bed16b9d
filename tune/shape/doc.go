// Package shape predicts plans of a fixed shape: the numbers of replicas, stages and devices of a tensor-parallel
// group.
//
// Input: a model of repeated blocks, a cluster of one device type with kernels (package profile/kernels), and a Shape.
// Output: a Prediction with the step's time, its parts, and the memory of a device of each stage. Errors: models
// without blocks, clusters of several device types, and shapes that do not divide the batch or the devices. Only Best
// and Rank search, among shapes; package tune searches among all plans.
//
// Planned breaks down the step of any plan, as Explain does for shapes. It simulates the plan again without its sums
// and without its messages.
//
// All replicas are identical, and so are the devices of a group. So one replica's pipeline of groups is simulated
// (package sim), and the collectives of replicas and groups are added in closed form. A step of thousands of devices
// then costs no more to predict than one replica's pipeline. If messages of several replicas wait for each other at an
// uplink, a rail or a bus, these replicas are simulated together, up to mostTogether of them. Above mostPlayed
// computations, two steps with fewer micro-batches are simulated instead. In these steps the pipeline reaches its
// steady state, in which every further micro-batch takes the same time.
//
// # Ranks
//
// Ranks are numbered as in Megatron-LM: groups are innermost, then replicas, then stages. A group is on one innermost
// level if it fits there. Devices of the same position in their groups sum gradients over all replicas. Activations are
// sent between devices of the same position and replica in neighbouring stages. In a group of t devices, each device
// sends 1/t of them (Narayanan et al., SC 2021, section 4.1).
//
// # The step
//
//	step = pipeline + gradients + tied + contention + update + step_s
//
// `pipeline` is the simulated end of the last backward. Blocks with recompute add their forward to the backward;
// selective recompute adds only the attention scores (Korthikanti et al., 2022). Embedding, head and loss are never
// recomputed.
//
// `gradients` is the time of the sum over the replicas. With Behind, all of the sum comes after the last backward.
// Otherwise the sum overlaps the last micro-batch's backward, which hides the fraction `overlap` of the shorter of the
// two. If the states are sharded, the gather of the weights follows. Nothing hides it, as in package sim, unless
// WeightsAhead moves it beside the next step's first forward. `tied` is the time to sum a shared embedding's gradients
// over the first and last stage. `update` is the time to move the optimizer's bytes. If the states are sharded, it is
// divided by dp, the number of replicas.
//
// # Contention
//
// On levels with contention, the messages of the simulated replicas share ports, and so do collectives inside their
// computations. A stage's sum meets one message: the one that leaves the stage when its last backward ends. Both go at
// fair rates until one has ended. The message delays every stage in front. Left out are sums of other stages on the
// same uplink or rail, and split backwards, whose last message leaves before the sum.
//
// # Sharding (Rajbhandari et al., ZeRO, SC 2020; Zhao et al., PyTorch FSDP, VLDB 2023)
//
//	none   nothing is sharded                            all-reduce
//	zero1  states over dp                                reduce-scatter, and gather of the weights
//	zero2  gradients too                                 reduce-scatter for every micro-batch, gather of the weights
//	zero3  weights too                                   gathers in forward and backward, reduce-scatter in backward
//
// With zero3 a unit (an embedding, a block, a head) is gathered while the unit before it computes. A unit then takes
// the longer of its kernels and its collectives, plus (1 - overlap) of the shorter.
//
// # Memory of a device
//
// First, parameters, gradients and optimizer states by precision: 16 or 18 bytes a parameter in 16 bits with Adam. They
// are divided by t and, if sharded, by dp. Second, what the micro-batches in flight have saved at the peak, by package
// profile/kernels. A unit's input is saved by the unit before, or a message brings it. A stage frees its output when it
// is sent (Korthikanti et al., appendix B). With recompute, a block in flight keeps only its input, and the activations
// of one block are in memory.
package shape
