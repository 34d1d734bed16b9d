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

// world is what is assumed where the paper says nothing. The zero value is the machines and models as described.
type world struct {
	// blocking has a message keep both of its GPUs from computing, as one does that is sent and received between two
	// computations.
	blocking bool
	// beside has GPUs run the kernels of several pipelines at once.
	beside bool
	// kernels has GPUs as the preset v100-32gb describes them: what small micro-batches take is launches.
	kernels bool
	// fill is the part of a GPU that a micro-batch of the baselines fills while it computes; 0 is what a roofline says.
	// A layer then takes as long as if a micro-batch had so many samples more, whatever its size.
	fill float64
	// narrow has the partitioner see the wires as they are. The longest of stages and messages is all that it looks at,
	// so that it cares little how evenly stages compute as soon as a wire is slower than they are. Else it sees none.
	narrow bool
	// untied has weights that two layers share be two.
	untied bool
	// positions is the length of BERT's inputs; 0 is the table's.
	positions int
}

// peak is the utilisation that Figure 2's text has a GPU peak at under pipeline parallelism.
const peak = .6

// worlds are the assumptions that the figures are computed under besides those described, alone where they matter so.
var worlds = []world{
	{blocking: true},
	{narrow: true},
	{beside: true},
	{beside: true, kernels: true},
	{beside: true, fill: peak},
}

// switches are the assumptions by themselves.
var switches = []table.Switch[world]{
	{What: world{blocking: true}.String(), To: func(x *world) { x.blocking = true }},
	{What: world{narrow: true}.String(), To: func(x *world) { x.narrow = true }},
	{What: world{beside: true}.String(), To: func(x *world) { x.beside = true }},
	{What: world{kernels: true}.String(), To: func(x *world) { x.kernels = true }},
	{What: world{fill: peak}.String(), To: func(x *world) { x.fill = peak }},
}

// few are those of them that move most.
var few = []world{{blocking: true}, {beside: true, kernels: true}, {beside: true, fill: peak}}

// String is "messages keep GPUs from computing, pipelines' kernels run side by side".
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

// switches is how many assumptions are others.
func (x world) switches() (n int) {
	for _, is := range []bool{x.blocking, x.narrow, x.beside, x.kernels, x.fill > 0, x.untied, x.positions > 0} {
		if is {
			n++
		}
	}
	return n
}

// load is a training in this world, partitioned in it; microBatches is what its baselines cut a batch into.
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

// emptier has every layer take as long as if a micro-batch had so many samples more, each at the device's peak.
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

// atOnce does n things, as many at once as there are processors, and gives the first error of them in their order.
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
