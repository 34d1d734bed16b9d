// Package profile holds what each layer of a model costs on each device type.
//
// Input: measurements of package timing, or a device described by peak and bandwidth, for the roofline. Output: a
// Profile, saved as versioned JSON; reading and writing a file loses no field. Errors: other versions, truncated files,
// negative or non-finite times, layers without the requested micro-batch size. The package does not know plans.
package profile

import "github.com/millrace-ml/millrace/profile/board"

// Version is the version of the JSON form.
const Version = 1

// Cost is what one layer takes on one device type for one micro-batch size. Times are medians over the measured
// repetitions, in seconds. Its fields are those of a profile's file.
type Cost struct {
	Device     string `json:"device"`
	MicroBatch int    `json:"micro_batch"` // samples of a micro-batch

	ForwardS float64 `json:"forward_s"`
	// BackwardS is the whole backward. BackwardInputS and BackwardWeightS are its halves, or null if they are unknown
	// or the backward cannot be split.
	BackwardS       float64  `json:"backward_s"`
	BackwardInputS  *float64 `json:"backward_input_s"`
	BackwardWeightS *float64 `json:"backward_weight_s"`
	// BareForwardS is the time of a forward that keeps nothing for a backward, as under recompute and in an evaluation.
	// AgainS is the time of a backward that first computes the forward again. If not measured, they are null; ForwardS,
	// and ForwardS + BackwardS, are then used instead.
	BareForwardS *float64 `json:"bare_forward_s,omitempty"`
	AgainS       *float64 `json:"again_s,omitempty"`
	// Board holds further costs on an FPGA board, which computes while it moves weights; null on other devices.
	Board *board.Cost `json:"board,omitempty"`
	// FeedS is the time to copy those model inputs of a micro-batch that no earlier layer reads. It leaves out reading
	// them from the data set, which runs in parallel to the workers.
	FeedS float64 `json:"feed_s,omitempty"`
	// Spread is (third quartile - first quartile) / median of the times of forward plus backward.
	Spread float64 `json:"spread,omitempty"`

	OutputBytes int64 `json:"output_bytes"` // the layer's output tensors
	SavedBytes  int64 `json:"saved_bytes"`  // held from forward to backward: with the layer's own output, without its input
	// PendingBytes is the size of what is held between the input half of a backward and the weight half: the output's
	// gradient, and what the forward saved for the weight half. null means unknown.
	PendingBytes *int64 `json:"pending_bytes,omitempty"`
	// PendingInputBytes is the part of PendingBytes that is the layer's input. The layer that made this input holds it
	// too, until that layer's own input half runs. null means unknown.
	PendingInputBytes *int64 `json:"pending_input_bytes,omitempty"`
	WorkspaceBytes    int64  `json:"workspace_bytes"` // most temporary bytes inside a forward or a backward
	// ForwardPeakBytes and BackwardPeakBytes are the peaks of this layer's forward and backward, above the bytes that
	// were held when each began.
	ForwardPeakBytes  int64 `json:"forward_peak_bytes"`
	BackwardPeakBytes int64 `json:"backward_peak_bytes"`
	// FirstBackwardPeakBytes is BackwardPeakBytes of the first backward after an update, which also allocates the
	// parameters' gradients. 0 means not measured.
	FirstBackwardPeakBytes int64 `json:"first_backward_peak_bytes,omitempty"`
	// Scores are the costs of attention scores; zero if the layer has none or they are unknown.
	Scores Scores `json:"scores,omitzero"`
	// HalvesPeakBytes holds the peaks of the halves of a backward; null if not measured.
	HalvesPeakBytes *HalvesPeaks `json:"halves_peak_bytes,omitempty"`
}

// HalvesPeaks holds the peaks of the halves of a layer's backward. A peak is in bytes above what was held when the half
// began. FirstInput and FirstWeight are for the first backward after an update. In that backward, the half for the
// weights also allocates the parameters' gradients. If a layer cannot split, the half for the input is the whole
// backward and allocates them.
type HalvesPeaks struct {
	Input       int64 `json:"input"`
	FirstInput  int64 `json:"first_input"`
	Weight      int64 `json:"weight"`
	FirstWeight int64 `json:"first_weight"`
}

// Scores says what recomputing attention scores changes in a layer.
type Scores struct {
	AgainS float64 `json:"again_s"` // time to compute scores again
	Bytes  int64   `json:"bytes"`   // saved bytes that recomputing scores frees
}

// Feed is a model input that a layer reads.
type Feed struct {
	Name           string `json:"name"`
	BytesPerSample int64  `json:"bytes_per_sample"`
}

// Shared is a frozen tensor that several layers read. Each stage with one of these layers holds a copy.
type Shared struct {
	Name  string `json:"name"` // its full name in the layer that owns it
	Bytes int64  `json:"bytes"`
}

// Layer is the costs of one layer.
type Layer struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	From []int  `json:"from"` // layers whose outputs it reads; -1 is a model input
	// Feeds are the model inputs that the layer reads. They are data, and have no gradient.
	Feeds          []Feed `json:"feeds,omitempty"`
	ParameterBytes int64  `json:"parameter_bytes"`
	BufferBytes    int64  `json:"buffer_bytes,omitempty"` // kept and saved, without gradient: batch-norm statistics
	// FrozenBytes is the size of the frozen parameters and constants that only this layer reads. FrozenShared lists
	// those that other layers read too.
	FrozenBytes  int64    `json:"frozen_bytes,omitempty"`
	FrozenShared []Shared `json:"frozen_shared,omitempty"`
	// TiedTo is the layer that owns a parameter which this layer shares, or -1. TiedBytes is the parameter's size.
	TiedTo    int   `json:"tied_to"`
	TiedBytes int64 `json:"tied_bytes,omitempty"`
	// NoGradient says that neither the layer nor any layer it depends on has trained parameters. Such a layer has no
	// backward, and no gradient of its output crosses a cut. It is never set for the last layer.
	NoGradient bool `json:"no_gradient,omitempty"`
	// FloatOutputs is the number of elements in one sample of each floating-point output. WholeOutputBytes is the bytes
	// of one sample of all other outputs. If neither is known, all of OutputBytes is one tensor of 32-bit floats.
	FloatOutputs     []int64 `json:"float_outputs,omitempty"`
	WholeOutputBytes int64   `json:"whole_output_bytes,omitempty"`
	// Features is the number of features by which stages may divide the layer (model.Model.Features). 0 means not
	// divisible or unknown.
	Features int `json:"features,omitempty"`
	UpdateTimes
	// Updates holds the update times by device type, in a joined profile.
	Updates []DeviceUpdate `json:"updates,omitempty"`
	Costs   []Cost         `json:"costs"`
}

// Transfer is the cost of moving data between workers on the measured machine.
type Transfer struct {
	LatencyS                float64 `json:"latency_s"`
	BandwidthBytesPerSecond float64 `json:"bandwidth_bytes_per_s"`
	// AllReduceBytesPerSecond is bytes of gradients divided by the time of their all-reduce among AllReduceWorkers
	// workers.
	AllReduceBytesPerSecond float64 `json:"all_reduce_bytes_per_s"`
	AllReduceWorkers        int     `json:"all_reduce_workers"`
	// DispatchS is how much longer a computation takes in a pipeline than in passes over the whole model. It includes
	// the runtime's own work, waking up after a wait, and caches emptied by other work. SendS is a worker's time to
	// post a message, ReceiveS its time to take one that has arrived. 0 means not measured.
	DispatchS float64 `json:"dispatch_s"`
	SendS     float64 `json:"send_s,omitempty"`
	ReceiveS  float64 `json:"receive_s,omitempty"`
	// Packing holds the speeds of packing numbers into fewer bits; empty if not measured.
	Packing []Packing `json:"packing,omitempty"`
	retired
}

// retired holds fields of earlier versions, which are read and dropped.
type retired struct {
	LayerS gone `json:"layer_s,omitzero"`
	WakeS  gone `json:"wake_s,omitzero"`
	TurnS  gone `json:"turn_s,omitzero"`
	StallS gone `json:"stall_s,omitzero"`
}

// gone is a field of older files. Any value is accepted and ignored, and none is written.
type gone struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*gone) UnmarshalJSON([]byte) error { return nil }

// Profile has a model's costs. Its methods answer questions about the costs, or return a changed profile.
type Profile struct {
	Version          int    `json:"version"`
	Model            string `json:"model"`
	ModelID          string `json:"model_id"` // digest of the model's description
	Source           string `json:"source"`   // "measured", "roofline", "kernels", "imported", "joined"
	Engine           string `json:"engine,omitempty"`
	ThreadsPerWorker int    `json:"threads_per_worker,omitempty"`
	Concurrency      int    `json:"concurrency,omitempty"` // workers that computed at once while it was measured
	// PaceSpread is (slowest - mean) / mean of the times of workers that do equal work at once; it is the median over the
	// visits of package timing. On a shared machine one core at a time is slow, for about a second.
	PaceSpread float64 `json:"pace_spread,omitempty"`
	// PassSpread is how much measured passes vary, which the medians do not show; null if not measured.
	PassSpread *PassSpread `json:"pass_spread,omitempty"`
	// Precision is the number format of the costs, one of cluster.Precisions; "" means f32.
	Precision       string `json:"precision,omitempty"`
	Optimizer       string `json:"optimizer,omitempty"`
	OptimizerStates int    `json:"optimizer_states"` // copies of the parameters that the optimizer keeps: SGD 0, Adam 2
	// Slices lists sizes whose costs are only for replicas that split a micro-batch. Planners do not choose these
	// sizes.
	Slices   []int     `json:"slices,omitempty"`
	Layers   []Layer   `json:"layers"`
	Transfer *Transfer `json:"transfer,omitempty"`
	// Machines holds the Transfer, Concurrency and so on of each machine, by device type, in a joined profile.
	Machines []Machine `json:"machines,omitempty"`
}

// PassSpread holds the lower and the upper quartile of the times of measured passes over the whole model. Times are
// relative to the median for their micro-batch size.
type PassSpread struct {
	Below  float64 `json:"below"` // 1 - lower quartile
	Above  float64 `json:"above"` // upper quartile - 1
	Passes int     `json:"passes"`
}

// TiedLayers returns the groups of layers that share a parameter: an owner and all that are tied to it.
func (p *Profile) TiedLayers() [][]int {
	groups := make([][]int, len(p.Layers))
	for l, layer := range p.Layers {
		if owner := layer.TiedTo; owner >= 0 {
			if groups[owner] == nil {
				groups[owner] = []int{owner}
			}
			groups[owner] = append(groups[owner], l)
		}
	}
	var out [][]int
	for _, g := range groups {
		if g != nil {
			out = append(out, g)
		}
	}
	return out
}
