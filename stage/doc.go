// Package stage computes a run of a model's layers on one engine device, one layer
// at a time.
//
// In: a model, the first and last layer, a device, and for every micro-batch the
// tensors that cross the cut in front. Out: the tensors that cross the cut behind,
// gradients going the other way, the loss; gradients gathered in the parameters until an
// update; tensors for a checkpoint.
// Refused: a backward without its forward, tensors that do not belong to the cut.
//
// Every layer reads leaves, detached from whoever made them, so each has an autograd
// graph of its own and a cut between stages is no different from the border between two
// layers of one stage. Backward walks the layers in descending order and adds the
// gradients of a tensor that several layers read in that order, by an explicit sum. Cutting a
// model elsewhere therefore changes no sum and no bit.
//
// A Stage belongs to its device's goroutine. It knows nothing of schedules or of wires.
package stage
