// Package stage computes a range of a model's layers on one engine device, layer by layer.
//
// In: a model, the first and last layer, a device, and for every micro-batch the tensors that cross the cut before the
// first layer. Out: the tensors that cross the cut after the last layer, gradients in the other direction, and the
// loss; gradients accumulated in the parameters until an update; tensors for a checkpoint. Refused: a backward without
// its forward, and tensors that do not belong to the cut.
//
// Every layer reads leaves, detached from the layers that made them, so each layer has an autograd graph of its own. A
// cut between stages is therefore no different from the border between two layers of one stage. Backward walks the
// layers in descending order. If several layers read a tensor, it adds their gradients of the tensor in that order, by
// an explicit sum. So cutting a model elsewhere changes no sum and no bit.
//
// A layer that is divided between neighbours (BaPipe §3.3.2) is several layers here, its pieces (model.Model.Divide). A
// stage has such a piece as its first or last layer, or at both ends if it shares two layers. It holds that piece's
// rows of the parameters with their optimizer states. The cut inside the layer works like any other. The layer's input
// and the features made so far cross it, and gradients of both come back. The returned gradient of the input is added
// to the gradient that the earlier stage has computed for it. Initial values are those of the whole parameter, drawn or
// from files; the stage takes its rows of them. A Snapshot names the rows.
//
// A Stage has four parts. Params holds the parameters, each once however many layers read it. Versions holds the older
// weights that the backwards of micro-batches in flight still need. Gradients holds what backwards have added up until
// an update, on the leaves of one version at a time. Statistics holds the buffers that replicas make equal. The methods
// of Stage compute (Forward, Backward, Evaluate), or need several parts (Renew, Return, Drop).
//
// A Stage belongs to its device's goroutine. It knows neither schedules nor the wire.
package stage
