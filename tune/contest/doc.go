// Package contest ranks every order of instructions under every weight policy.
//
// Input: workers, micro-batches, memory, and the costs of stages (Uniform, or ProfileStages of a model). Output: an
// Entry for each family and policy, the best first, each with its step, its memory, and why it loses to the best
// (Losses). Nothing is searched.
//
// Errors: no workers or micro-batches, or too many to simulate. A family that refuses the settings gets an entry
// that says so.
package contest
