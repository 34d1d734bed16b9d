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
	// BareForwardS is a forward that keeps nothing, as under recompute and in an evaluation: it makes no
	// graph, and soon reuses the memory that it frees. AgainS is the backward to it, which computes the
	// forward once more, with a graph, and goes back. null where nobody has measured them: ForwardS, and
	// ForwardS + BackwardS.
	BareForwardS *float64 `json:"bare_forward_s,omitempty"`
	AgainS       *float64 `json:"again_s,omitempty"`
	// Board is what else a board takes, which computes and moves weights at once; null on other devices.
	Board *board.Cost `json:"board,omitempty"`
	// FeedS is copying the model inputs of a micro-batch that the layer is the first to read; the data has
	// got them by then, beside the workers.
	FeedS float64 `json:"feed_s,omitempty"`
	// Spread is (third quartile - first quartile) / median of forward plus backward.
	Spread float64 `json:"spread,omitempty"`

	OutputBytes int64 `json:"output_bytes"` // the layer's output tensors
	SavedBytes  int64 `json:"saved_bytes"`  // held from forward to backward, its own output included, its input not
	// PendingBytes is what the weights' half of a backward keeps until it runs: what it was
	// given and what the forward saved for it. null where that is not known.
	PendingBytes *int64 `json:"pending_bytes,omitempty"`
	// PendingInputBytes is how much of it is the layer's input, which the layer in front has saved too, until
	// its own half is done. null where that is not known.
	PendingInputBytes *int64 `json:"pending_input_bytes,omitempty"`
	WorkspaceBytes    int64  `json:"workspace_bytes"` // most bytes held at once inside forward or backward beyond those
	// ForwardPeakBytes and BackwardPeakBytes: the high-water mark above what was live
	// when the forward or backward of this layer began.
	ForwardPeakBytes  int64 `json:"forward_peak_bytes"`
	BackwardPeakBytes int64 `json:"backward_peak_bytes"`
	// FirstBackwardPeakBytes is that of the first backward after an update, which makes the gradients of
	// the parameters as it goes. 0 where nobody has measured it.
	FirstBackwardPeakBytes int64 `json:"first_backward_peak_bytes,omitempty"`
	// Scores are of attention; zero where there are none, or where nobody knows.
	Scores Scores `json:"scores,omitzero"`
	// HalvesPeakBytes is those of the halves of a backward; null where nobody has measured them.
	HalvesPeakBytes *HalvesPeaks `json:"halves_peak_bytes,omitempty"`
}

// HalvesPeaks is the high-water marks of the halves of a layer's backward, in bytes above what was live
// when they began. First ones make the gradients of parameters as they go: of a layer that cannot
// split the input's half, which is its whole backward, of others the weights' half.
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

// Shared is what nobody changes and several layers read. Each stage that reads it has one of its own.
type Shared struct {
	Name  string `json:"name"` // its owner's full name for it
	Bytes int64  `json:"bytes"`
}

// Layer is the costs of one layer.
type Layer struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	From []int  `json:"from"` // layers whose outputs it reads; -1 is a model input
	// Feeds is the model inputs among them, which are data and come with no gradient.
	Feeds          []Feed `json:"feeds,omitempty"`
	ParameterBytes int64  `json:"parameter_bytes"`
	BufferBytes    int64  `json:"buffer_bytes,omitempty"` // kept and saved, without gradient: batch-norm statistics
	// FrozenBytes is what nobody changes and this layer alone reads: frozen parameters and constants. FrozenShared
	// is what other layers read too.
	FrozenBytes  int64    `json:"frozen_bytes,omitempty"`
	FrozenShared []Shared `json:"frozen_shared,omitempty"`
	// TiedTo is the layer that owns a parameter this one shares, or -1; TiedBytes its size.
	TiedTo    int   `json:"tied_to"`
	TiedBytes int64 `json:"tied_bytes,omitempty"`
	// NoGradient says that nothing in front of what it makes learns, nor itself: it has no backward, and no gradient
	// of what it makes crosses a cut. Where nobody has said so every layer has a backward.
	NoGradient bool `json:"no_gradient,omitempty"`
	// FloatOutputs is the elements, of one sample, of each output of floating-point numbers, and WholeOutputBytes the
	// bytes of the others. Where neither is known all of OutputBytes is one tensor of 32-bit numbers.
	FloatOutputs     []int64 `json:"float_outputs,omitempty"`
	WholeOutputBytes int64   `json:"whole_output_bytes,omitempty"`
	// Features is in how many features stages may divide the layer (model.Model.Features). 0: it is whole where a plan is
	// executed, or nobody has said.
	Features int `json:"features,omitempty"`
	UpdateTimes
	// Updates is, of a joined profile, these times by device type.
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
	// DispatchS is how much longer a computation takes in a pipeline than its layers do in passes over all of
	// them: what the runtime spends on it, what waking up after a wait costs, and caches that what goes on
	// between the instructions has emptied. SendS and ReceiveS are what a worker spends on giving a message
	// away and on taking one that has come. Of a small model that is most of a step. 0 where nobody has
	// measured them.
	DispatchS float64 `json:"dispatch_s"`
	SendS     float64 `json:"send_s,omitempty"`
	ReceiveS  float64 `json:"receive_s,omitempty"`
	// Packing is what writing numbers in fewer bits takes; empty where nobody has measured it.
	Packing []Packing `json:"packing,omitempty"`
	retired
}

// retired is terms of earlier versions, which are read and not kept.
type retired struct {
	LayerS gone `json:"layer_s,omitzero"`
	WakeS  gone `json:"wake_s,omitzero"`
	TurnS  gone `json:"turn_s,omitzero"`
	StallS gone `json:"stall_s,omitzero"`
}

// gone is a field of older files: whatever it says is passed over, and nobody writes it.
type gone struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*gone) UnmarshalJSON([]byte) error { return nil }

// Profile is a model's costs. Its methods are pure questions about costs, or make a profile of other ones.
type Profile struct {
	Version          int    `json:"version"`
	Model            string `json:"model"`
	ModelID          string `json:"model_id"` // digest of the description: a profile fits one model
	Source           string `json:"source"`   // "measured", "roofline", "kernels", "imported"
	Engine           string `json:"engine,omitempty"`
	ThreadsPerWorker int    `json:"threads_per_worker,omitempty"`
	Concurrency      int    `json:"concurrency,omitempty"` // workers that computed at once while it was measured
	// PaceSpread is (slowest - mean) / mean of the workers' times for equal work at once, the median over visits. Cores
	// of a machine shared with others are slow one at a time, for a second or so.
	PaceSpread float64 `json:"pace_spread,omitempty"`
	// PassSpread is how far measured passes are apart, which the medians do not say; null where nobody has said so.
	PassSpread *PassSpread `json:"pass_spread,omitempty"`
	// Precision is the format that its costs are in, of cluster.Precisions; "" is f32.
	Precision       string `json:"precision,omitempty"`
	Optimizer       string `json:"optimizer,omitempty"`
	OptimizerStates int    `json:"optimizer_states"` // copies of the parameters it keeps: SGD 0, Adam 2
	// Slices are sizes whose costs are there for replicas that split a micro-batch; none is offered as a micro-batch.
	Slices   []int     `json:"slices,omitempty"`
	Layers   []Layer   `json:"layers"`
	Transfer *Transfer `json:"transfer,omitempty"`
	// Machines is, of a joined profile, what is otherwise said of the machine above, by device type.
	Machines []Machine `json:"machines,omitempty"`
}

// PassSpread is where the middle half of measured passes over the whole model lies, as parts of the middle pass of
// its micro-batch size.
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
