// Package lower adds transfers, collectives and updates to an order of computations.
//
// In: a compute-only Program, the groups of stages that share a parameter, whether updates need the norm of all
// gradients, and whether updates may come before the norm is known. Out: a new Program with transfers, collectives and
// updates.
//
// Each of these has its own pass: transfers next to the computations at a boundary, the collectives of each update in
// their order (AR, TG, GN), the update itself, and post-validation. The weight policy decides where updates come: at
// the end of a step (flush), after the last gradient of a group of micro-batches (stream), before the first forward
// that needs them (deferred), or where the family has put them (elastic). The package also changes lowered Programs, so
// that they replay a recorded order (Recorded, Averaged) or their stages save themselves (Saved).
//
// Refused: Programs that are already lowered, ties that cannot be summed (CheckTies), stages that share a parameter or
// a norm but update after different numbers of minibatches, and recorded orders that no run can have. The result is not
// checked here; see schedule/check.
//
// It imports only schedule.
package lower
