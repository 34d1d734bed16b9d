// Package contest ranks every order of instructions under every weight policy.
//
// In: workers, micro-batches, memory, and the costs of stages (Uniform, or ProfileStages of a
// model). Out: an Entry for each family and policy, the best first, each with its step, memory,
// and why it is behind the best (Losses). Nothing is searched.
//
// Refused: no workers or micro-batches, or too many to simulate. A family that refuses the
// settings is an entry that says so.
package contest
