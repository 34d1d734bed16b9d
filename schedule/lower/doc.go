// Package lower adds to an order of computations everything that it implies.
//
// In: a compute-only Program, the groups of stages that share a parameter, whether updates need the norm of
// all gradients and whether they may go before it is known. Out: a new Program with transfers, collectives
// and updates.
//
// It is a pass for each thing: transfers beside the computations at a boundary, the collectives of each
// update in the order in which they need each other (AR, TG, GN), the update itself, and post-validation.
// Where updates stand is the weight policy's: at the end of a step (flush), behind the last gradient of a
// group of micro-batches (stream), in front of the first forward that needs them (deferred), or where the
// family has put them (elastic). Of Programs that are lowered it makes others: with an order that has happened
// (Recorded, Averaged), or with stages that save themselves (Saved).
//
// Refused: Programs that are lowered already, ties that name no two stages, stages that share a parameter or
// a norm and update after different numbers of minibatches. What it makes is not checked: see schedule/check.
//
// It imports schedule alone.
package lower
