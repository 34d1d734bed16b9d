// Package family generates the orders of computations. Each kind of order has its own file, and is found in a registry.
//
// In: a family's name, or the name in its paper, and schedule.Settings: placement of stages, micro-batches, depths,
// weight policy. Out: a compute-only Program. Callers find an order in the registry by property (Policies, Chunks,
// General, Own, Undivided, Alone, Deepest, Halves, Streaming, Beside), never by name. To add a family it is enough to
// add a file that registers a Family.
//
// There are three kinds of generators. listRule describes orders as data: how many forwards go first, how chunks take
// turns, how late weight gradients come. greedy and listing simulate the order in slots and fill bubbles with
// computations that are ready. Other patterns have their own generators. RegisterProgram makes a family of a Program
// from a file.
//
// Refused, with the reason: settings that this order or any order cannot use; depths that deadlock; policies and ways
// of replication that the family does not list.
//
// It imports schedule, schedule/lower and schedule/check.
package family
