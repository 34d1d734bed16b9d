// Package family writes the orders of computations, a file for each kind, in a registry.
//
// In: a family's name, or its paper's name for it, and schedule.Settings: where stages lie, micro-batches,
// depths, weight policy. Out: a compute-only Program. Whoever looks for an order asks the registry by
// property (Policies, Chunks, General, Undivided, Alone, Deepest, Halves, Streaming, Beside), never by name; a file
// that registers a Family is all that a new one needs.
//
// There are three kinds of writers: listRule, in which orders are data (how many forwards go first, how
// chunks take turns, how late weight gradients come); greedy and listing, which play the order in slots and
// fill bubbles with what is ready; and generators of their own for patterns that are neither. RegisterProgram
// makes a family of a Program from a file.
//
// Refused, with the reason: settings that no order can use, or not this one; depths that deadlock; policies
// and ways of replication that the family does not list.
//
// It imports schedule, schedule/lower and schedule/check.
package family
