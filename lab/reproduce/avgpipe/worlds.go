package avgpipe

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// world holds assumptions about what the paper leaves open. The zero value makes none of them.
type world struct {
	// blocking means that neither GPU computes while a message travels between them, as if the message were sent and
	// received between two computations.
	blocking bool
	// beside lets GPUs run the kernels of several pipelines at once.
	beside bool
	// kernels describes GPUs by the preset v100-32gb, in which small micro-batches mostly spend their time on launches.
	kernels bool
	// fill is the fraction of a GPU that a baseline's micro-batch fills while it computes. If fill is 0, a layer takes
	// as long as a roofline says. If it is above 0, a layer takes longer for every micro-batch, by the time of a fixed
	// number of samples at the GPU's peak rate.
	fill float64
	// narrow says whether the partitioner sees the real wires; otherwise it sees infinitely fast ones. The partitioner
	// minimises the longest time among all stages and messages. If a message takes the longest time, the partitioner
	// hardly balances the stages.
	narrow bool
	// untied means that two layers do not share weights: each has its own copy.
	untied bool
	// positions is the length of BERT's inputs; 0 means the length in the table.
	positions int
}

// peak is the peak utilisation of a GPU under pipeline parallelism, according to the text on Figure 2.
const peak = .6

// worlds lists the changed assumptions to try for the figures: single ones, and the combinations that matter.
var worlds = []world{
	{blocking: true},
	{narrow: true},
	{beside: true},
	{beside: true, kernels: true},
	{beside: true, fill: peak},
}

// switches lists the changes that are tried. Each changes one assumption.
var switches = []table.Switch[world]{
	{What: world{blocking: true}.String(), To: func(x *world) { x.blocking = true }},
	{What: world{narrow: true}.String(), To: func(x *world) { x.narrow = true }},
	{What: world{beside: true}.String(), To: func(x *world) { x.beside = true }},
	{What: world{kernels: true}.String(), To: func(x *world) { x.kernels = true }},
	{What: world{fill: peak}.String(), To: func(x *world) { x.fill = peak }},
}

// few lists the assumptions with the largest effects.
var few = []world{{blocking: true}, {beside: true, kernels: true}, {beside: true, fill: peak}}

// String returns a text like "messages block both GPUs, pipelines' kernels run side by side".
func (x world) String() string {
	var all []string
	for _, a := range []struct {
		is   bool
		what string
	}{
		{x.blocking, "messages block both GPUs"},
		{x.narrow, "the partitioner sees the wires' rate"},
		{x.beside, "pipelines' kernels run side by side"},
		{x.kernels, "layers take launches"},
		{x.fill > 0, fmt.Sprintf("micro-batches fill %.0f %% of a GPU", 100*x.fill)},
		{x.untied, "no weights are tied"},
		{x.positions > 0, fmt.Sprintf("inputs have %d positions", x.positions)},
	} {
		if a.is {
			all = append(all, a.what)
		}
	}
	return strings.Join(all, ", ")
}

// switches returns the number of changed assumptions.
func (x world) switches() (n int) {
	for _, is := range []bool{x.blocking, x.narrow, x.beside, x.kernels, x.fill > 0, x.untied, x.positions > 0} {
		if is {
			n++
		}
	}
	return n
}

// load returns a training, partitioned under these assumptions, and all possible sizes of micro-batches. microBatches
// is the number of micro-batches into which its baselines divide a batch.
func (x world) load(ctx context.Context, t training, microBatches int) (*avgpipe.Workload, []int, error) {
	if x.positions > 0 {
		settings := map[string]any{"context": x.positions}
		for name, value := range t.Settings {
			if name != "context" {
				settings[name] = value
			}
		}
		t.Settings = settings
	}
	w, sizes, err := t.described(x.kernels)
	if err != nil {
		return nil, nil, err
	}
	w.SideBySide = x.beside
	if x.blocking {
		for i := range w.Cluster.Levels {
			w.Cluster.Levels[i].OccupiesDevice = true
		}
	}
	if x.fill > 0 {
		if err := emptier(w, (1/x.fill-1)*float64(t.Batch)/float64(microBatches)); err != nil {
			return nil, nil, err
		}
	}
	if x.untied {
		for i := range w.Profile.Layers {
			l := &w.Profile.Layers[i]
			l.ParameterBytes += l.TiedBytes
			l.TiedTo, l.TiedBytes = -1, 0
		}
	}
	seen := *w
	if !x.narrow {
		c := *w.Cluster
		c.Levels = slices.Clone(c.Levels)
		for i := range c.Levels {
			c.Levels[i].BandwidthBytesPerSecond = math.MaxFloat32
		}
		seen.Cluster = &c
	}
	w.Base, err = avgpipe.Partition(ctx, &seen, tune.Overrides{})
	return w, sizes, err
}

// emptier lengthens every layer's forward and backward by the time of `samples` samples at the device's peak rate.
func emptier(w *avgpipe.Workload, samples float64) error {
	device := w.Cluster.Devices[0]
	for i := range w.Profile.Layers {
		forward, backward, err := w.Profile.Stretches(device, i, i, 1)
		if err != nil {
			return err
		}
		for j := range w.Profile.Layers[i].Costs {
			c := &w.Profile.Layers[i].Costs[j]
			c.ForwardS += samples * forward[0].PeakS
			c.BackwardS += samples * backward[0].PeakS
		}
	}
	return nil
}

// atOnce calls the function `do` with each i below n, on as many goroutines as processors. If several calls fail, it
// returns the error of the lowest i.
func atOnce(n int, do func(i int) error) error {
	errs, slots, wait := make([]error, n), make(chan struct{}, runtime.GOMAXPROCS(0)), sync.WaitGroup{}
	for i := range n {
		slots <- struct{}{}
		wait.Go(crash.Caught(func() {
			errs[i] = do(i)
			<-slots
		}))
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
