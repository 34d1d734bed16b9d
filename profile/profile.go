// Package profile says what each layer of a model costs on each device type.
//
// In: what package timing measured, or a device described by peak and bandwidth, for the
// roofline. Out: a Profile, saved as versioned JSON; readers keep every field that writers
// wrote. Refused: other versions, truncated files, negative or non-finite times, layers
// without the micro-batch size asked for.
// It knows no plan.
package profile

import "github.com/millrace-ml/millrace/profile/board"

// Version of the JSON form.
const Version = 1

// Cost is what one layer takes on one device type for one micro-batch size.
// Times are medians over the measured repetitions, in seconds. Its fields are those of a profile's file.
type Cost struct {
	Device     string `json:"device"`
	MicroBatch int    `json:"micro_batch"` // samples

	ForwardS float64 `json:"forward_s"`
	// BackwardS is the whole backward. The halves are null where the layer cannot split.
	BackwardS       float64  `json:"backward_s"`
	BackwardInputS  *float64 `json:"backward_input_s"`
	BackwardWeightS *float64 `json:"backward_weight_s"`
	// BareForwardS is a forward that keeps nothing for a backward, as under recompute and in an evaluation. AgainS is the
	// backward after it: the forward once more, with a graph, and the backward. null where they were not measured; then
	// ForwardS, and ForwardS + BackwardS, stand for them.
	BareForwardS *float64 `json:"bare_forward_s,omitempty"`
	AgainS       *float64 `json:"again_s,omitempty"`
	// Board is what else a board takes, which computes and moves weights at once; null on other devices.
	Board *board.Cost `json:"board,omitempty"`
	// FeedS is copying those model inputs of a micro-batch that no layer before this one reads. Reading them from the
	// data set is not in it: that goes on beside the workers.
	FeedS float64 `json:"feed_s,omitempty"`
	// Spread is (third quartile - first quartile) / median of forward plus backward.
	Spread float64 `json:"spread,omitempty"`

	OutputBytes int64 `json:"output_bytes"` // the layer's output tensors
	SavedBytes  int64 `json:"saved_bytes"`  // held from forward to backward, its own output included, its input not
	// PendingBytes is held from the input's half of a backward to the weights' half: the output's gradient, and what the
	// forward saved for the weights' half. null where that is not known.
	PendingBytes *int64 `json:"pending_bytes,omitempty"`
	// PendingInputBytes is the part of PendingBytes that is the layer's input. The layer before holds it too, until its
	// own half is done. null where that is not known.
	PendingInputBytes *int64 `json:"pending_input_bytes,omitempty"`
	WorkspaceBytes    int64  `json:"workspace_bytes"` // most bytes held at once inside forward or backward beyond those
	// ForwardPeakBytes and BackwardPeakBytes: the high-water mark above what was live
	// when the forward or backward of this layer began.
	ForwardPeakBytes  int64 `json:"forward_peak_bytes"`
	BackwardPeakBytes int64 `json:"backward_peak_bytes"`
	// FirstBackwardPeakBytes is BackwardPeakBytes of the first backward after an update, which also allocates the
	// parameters' gradients. 0 where it was not measured.
	FirstBackwardPeakBytes int64 `json:"first_backward_peak_bytes,omitempty"`
	// Scores are of attention; zero where there are none, or where nobody knows.
	Scores Scores `json:"scores,omitzero"`
	// HalvesPeakBytes is the peaks of the halves of a backward; null where they were not measured.
	HalvesPeakBytes *HalvesPeaks `json:"halves_peak_bytes,omitempty"`
}

// HalvesPeaks has the high-water marks of the halves of a layer's backward, in bytes above what was live when each
// began. First ones are those after an update, which also allocate the parameters' gradients: in the weights' half, or
// in the input's half of a layer that cannot split, which is its whole backward.
type HalvesPeaks struct {
	Input       int64 `json:"input"`
	FirstInput  int64 `json:"first_input"`
	Weight      int64 `json:"weight"`
	FirstWeight int64 `json:"first_weight"`
}

// Scores is what recompute selective does to a layer.
type Scores struct {
	AgainS float64 `json:"again_s"` // of computing scores again
	Bytes  int64   `json:"bytes"`   // that are then not saved
}

// Feed is a model input that a layer reads.
type Feed struct {
	Name           string `json:"name"`
	BytesPerSample int64  `json:"bytes_per_sample"`
}

// Shared is a frozen tensor that several layers read. Each stage that has one of them holds a copy.
type Shared struct {
	Name  string `json:"name"` // its owner's full name for it
	Bytes int64  `json:"bytes"`
}

// Layer is the costs of one layer.
type Layer struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	From []int  `json:"from"` // layers whose outputs it reads; -1 is a model input
	// Feeds are the model inputs that it reads. They are data, and have no gradient.
	Feeds          []Feed `json:"feeds,omitempty"`
	ParameterBytes int64  `json:"parameter_bytes"`
	BufferBytes    int64  `json:"buffer_bytes,omitempty"` // kept and saved, without gradient: batch-norm statistics
	// FrozenBytes is the frozen parameters and constants that this layer alone reads, FrozenShared those that other
	// layers read too.
	FrozenBytes  int64    `json:"frozen_bytes,omitempty"`
	FrozenShared []Shared `json:"frozen_shared,omitempty"`
	// TiedTo is the layer that owns a parameter this one shares, or -1; TiedBytes its size.
	TiedTo    int   `json:"tied_to"`
	TiedBytes int64 `json:"tied_bytes,omitempty"`
	// NoGradient says that neither the layer nor any that it depends on has parameters that learn: it has no backward,
	// and no gradient of its output crosses a cut.
	NoGradient bool `json:"no_gradient,omitempty"`
	// FloatOutputs is the number of elements in one sample of each floating-point output, and WholeOutputBytes the bytes
	// of the other outputs. Where neither is known all of OutputBytes is one tensor of 32-bit floats.
	FloatOutputs     []int64 `json:"float_outputs,omitempty"`
	WholeOutputBytes int64   `json:"whole_output_bytes,omitempty"`
	// Features is the number of features that stages may divide the layer by (model.Model.Features). 0: it is
	// not divided, or that is not known.
	Features int `json:"features,omitempty"`
	UpdateTimes
	// Updates are these times by device type, in a joined profile.
	Updates []DeviceUpdate `json:"updates,omitempty"`
	Costs   []Cost         `json:"costs"`
}

// Transfer is what moving data between workers costs on the measured machine.
type Transfer struct {
	LatencyS                float64 `json:"latency_s"`
	BandwidthBytesPerSecond float64 `json:"bandwidth_bytes_per_s"`
	// AllReduceBytesPerSecond is bytes of gradients over the time that an all-reduce of
	// them takes among AllReduceWorkers.
	AllReduceBytesPerSecond float64 `json:"all_reduce_bytes_per_s"`
	AllReduceWorkers        int     `json:"all_reduce_workers"`
	// DispatchS is how much longer a computation takes in a pipeline than its layers in passes over the whole model: the
	// runtime's own work, waking up after a wait, and caches that other work has emptied meanwhile. SendS and ReceiveS
	// are a worker's time for posting a message and for taking one that has arrived. 0 where they were not measured.
	DispatchS float64 `json:"dispatch_s"`
	SendS     float64 `json:"send_s,omitempty"`
	ReceiveS  float64 `json:"receive_s,omitempty"`
	// Packing is the time for writing numbers in fewer bits; empty where it was not measured.
	Packing []Packing `json:"packing,omitempty"`
	retired
}

// retired has fields of earlier versions, which are read and dropped.
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

// Profile has a model's costs. Its methods are pure questions about costs, or make a profile of other ones.
type Profile struct {
	Version          int    `json:"version"`
	Model            string `json:"model"`
	ModelID          string `json:"model_id"` // digest of the description: a profile fits one model
	Source           string `json:"source"`   // "measured", "roofline", "kernels", "imported"
	Engine           string `json:"engine,omitempty"`
	ThreadsPerWorker int    `json:"threads_per_worker,omitempty"`
	Concurrency      int    `json:"concurrency,omitempty"` // workers that computed at once while it was measured
	// PaceSpread is (slowest - mean) / mean of the workers' times for equal work at once, the median over visits. Cores
	// of a machine shared with others are slow one at a time, for about a second.
	PaceSpread float64 `json:"pace_spread,omitempty"`
	// PassSpread is the spread of measured passes, which the medians do not show; null where it was not measured.
	PassSpread *PassSpread `json:"pass_spread,omitempty"`
	// Precision is the format that its costs are in, of cluster.Precisions; "" is f32.
	Precision       string `json:"precision,omitempty"`
	Optimizer       string `json:"optimizer,omitempty"`
	OptimizerStates int    `json:"optimizer_states"` // copies of the parameters it keeps: SGD 0, Adam 2
	// Slices are the sizes with costs only for replicas that split a micro-batch; planners do not choose them.
	Slices   []int     `json:"slices,omitempty"`
	Layers   []Layer   `json:"layers"`
	Transfer *Transfer `json:"transfer,omitempty"`
	// Machines is what ThreadsPerWorker, Transfer and others say of one machine, by device type, in a joined profile.
	Machines []Machine `json:"machines,omitempty"`
}

// PassSpread is the middle half of measured passes over the whole model, relative to the median of their micro-batch
// size.
type PassSpread struct {
	Below  float64 `json:"below"` // of the lower quartile
	Above  float64 `json:"above"` // of the upper quartile
	Passes int     `json:"passes"`
}

// TiedLayers groups the layers that share a parameter: an owner and all that are tied to it.
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
