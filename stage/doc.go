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
// A layer that is divided between neighbours (BaPipe §3.3.2) is several layers here, its pieces (model.Model.Divide).
// A stage has one of them at its border, at both borders where it shares two layers, and holds that piece's rows of
// the parameters with their optimizer states. The cut inside the layer is like any other: what crosses it is what is
// live there, the layer's input and the features made so far, and gradients of both come back, the input's to be added
// to the earlier stage's own. First values are the whole parameter's, of which a stage takes its rows, drawn or from
// files; a Snapshot names the rows.
//
// A Stage has parts with invariants of their own. Params is the parameters, each once however many layers read
// it; Versions the older weights that micro-batches under way still go back through; Gradients what backwards
// have added up, on the leaves of one version at a time, until an update; Statistics the buffers that replicas
// make agree. What concerns several of them at once (Renew, Return, Drop) and what computes (Forward, Backward,
// Evaluate) is the Stage's.
//
// A Stage belongs to its device's goroutine. It knows nothing of schedules or of wires.
package stage
