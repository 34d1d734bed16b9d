package run

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// twin is a plain sequential program for plans of any replication under any weight policy. One micro-batch after the
// other goes forward through all stages and then back. Before each forward and each backward, the twin sets the
// parameters to the version of the weights that the policy's equation says. It uses no Program, Gate, wire or stored
// version. The other references of these tests consist of twins: one worker is a twin of a plan with one stage, and
// elastic averaging is several twins and a rule between them.
type twin struct {
	c        Config
	dev      engine.Device
	stages   [][]*stage.Stage // by stage and replica
	versions [][][][]byte     // by stage and version: the parameters' bytes
	version  reads
	sync     bool
	split    bool
	micros   int                // micro-batches in total
	batch    func(step int) int // which batch of the data a step takes; nil: the batch with the step's own number
	norms    []float64          // of the gradients of all updates, if they are clipped
	before   int                // number of updates that the optimizer's states have seen before the run
}

// reads returns the version of the stage's weights with which a replica of the stage runs a micro-batch, forward or
// back. Only under the policy latest does the backward read another version than the forward.
type reads func(stage, micro, replica int, back bool) int

// sequential runs a twin and returns its final weights.
func sequential(t testing.TB, c Config, version reads) map[string]process.Weight {
	t.Helper()
	out, _ := sequentially(t, c, version)
	return out
}

// reference returns the weights that every synchronous schedule must equal bit by bit. One worker with the whole model
// adds up the gradients of its micro-batches and updates once per step. If the first stage has replicas, a worker for
// each of them takes its turn, and their gradients are summed in rank order.
func reference(t testing.TB, c Config) map[string]process.Weight {
	t.Helper()
	c = undivided(c)
	return sequential(t, c, synchronous(c))
}

// undivided returns a synchronous run of a model in one stage, on the workers of the first stage.
func undivided(c Config) Config {
	p := *c.Plan
	p.Weights, p.Elastic, p.Replication = string(schedule.Sync), nil, string(schedule.RoundRobin)
	p.Stages = []plan.Stage{{LastLayer: len(c.Model.Layers) - 1, Devices: p.Stages[0].Devices}}
	c.Plan = &p
	return c
}

// synchronous returns the versions of micro-batches if steps end in a flush.
func synchronous(c Config) reads {
	return func(_, micro, _ int, _ bool) int { return micro / c.Plan.MicroBatches }
}

// sequentially is like sequential, and also returns the gradient norms of all updates, if they are clipped.
func sequentially(t testing.TB, c Config, version reads) (weights map[string]process.Weight, norms []float64) {
	t.Helper()
	w := newTwin(c, version)
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- crash.Guard(func() (err error) {
			weights, err = w.run()
			return err
		})
	}()
	if err := <-done; err != nil {
		t.Fatal("twin: ", err)
	}
	return weights, w.norms
}

func newTwin(c Config, version reads) *twin {
	weights := schedule.Policy(c.Plan.Weights)
	return &twin{
		c: c, version: version, sync: weights == schedule.Sync || weights == "",
		split: c.Plan.Replication == string(schedule.Split), micros: c.Train.Steps * c.Plan.MicroBatches,
	}
}

func (w *twin) run() (map[string]process.Weight, error) {
	dev, err := w.c.Engine.Open(0, 1)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	defer w.close()
	if err := w.open(dev); err != nil {
		return nil, err
	}
	for step := range w.c.Train.Steps {
		if err := w.minibatch(step); err != nil {
			return nil, err
		}
	}
	return w.weights()
}

// open makes the stages, each replica with the initial weights.
func (w *twin) open(dev engine.Device) error {
	w.dev = dev
	graph, err := stage.NewGraph(w.c.Model)
	if err != nil {
		return err
	}
	layers, err := nn.Build(w.c.Model)
	if err != nil {
		return err
	}
	for i, p := range w.c.Plan.Stages {
		w.stages = append(w.stages, nil)
		segment := 0 // recomputation gives the same bits, except under latest, where it uses newer weights
		if schedule.Policy(w.c.Plan.Weights) == schedule.Latest {
			segment = p.Recompute.Segment(p.LastLayer - p.FirstLayer + 1)
		}
		for range p.Devices {
			s, err := stage.New(stage.Config{
				Device: w.dev, Float: w.c.Engine.Float(), Graph: graph, First: p.FirstLayer, Last: p.LastLayer, Layers: layers,
				Seed: w.c.Train.Seed, States: w.c.Train.Optimizer.States(), Before: func(int) int { return w.before },
				Segment: segment,
			})
			if err != nil {
				return err
			}
			w.stages[i] = append(w.stages[i], s)
		}
	}
	return w.restart()
}

func (w *twin) close() {
	for _, s := range slices.Concat(w.stages...) {
		s.Close()
	}
}

// restart makes the current weights of the stages the only version.
func (w *twin) restart() error {
	w.versions = nil
	for _, replicas := range w.stages {
		now, err := w.bytes(replicas[0])
		if err != nil {
			return err
		}
		w.versions = append(w.versions, [][][]byte{now})
	}
	return nil
}

// minibatch takes the micro-batches of a step through all stages and makes the updates that are due.
func (w *twin) minibatch(step int) error {
	for index := range w.c.Plan.MicroBatches {
		id := step*w.c.Plan.MicroBatches + index
		if err := w.through(id); err != nil {
			return err
		}
		if err := w.updates(id); err != nil {
			return err
		}
	}
	return nil
}

// weights returns the newest parameters, and the buffers.
func (w *twin) weights() (map[string]process.Weight, error) {
	out := map[string]process.Weight{}
	for i, replicas := range w.stages {
		if err := w.load(replicas[0], w.latest(i)); err != nil {
			return nil, err
		}
		for _, v := range replicas[0].Params.Snapshot() {
			if !strings.Contains(v.Name, "#") { // names with # are optimizer states
				out[v.Name] = process.Weight{DType: v.Tensor.DType(), Shape: v.Tensor.Shape(),
					Data: bytes.Clone(w.memory(v.Tensor))}
			}
		}
	}
	return out, nil
}

func (w *twin) latest(i int) [][]byte { return w.versions[i][len(w.versions[i])-1] }

// bytes returns copies of a stage's parameters, and load writes such copies back.
func (w *twin) bytes(s *stage.Stage) ([][]byte, error) {
	var all [][]byte
	for _, p := range s.Params.Learned {
		data, err := w.dev.(viewer).View(p.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, bytes.Clone(data))
	}
	return all, nil
}

func (w *twin) load(s *stage.Stage, from [][]byte) error {
	for i, p := range s.Params.Learned {
		data, err := w.dev.(viewer).View(p.Value)
		if err != nil {
			return err
		}
		copy(data, from[i])
	}
	return nil
}

// group returns how many micro-batches an update of stage i covers.
func (w *twin) group(i int) int {
	if per := w.c.Plan.MicroBatches; w.sync || w.split || per > 1 {
		return per
	}
	return len(w.stages[i])
}

// covered returns how many minibatches' gradients are in the update of stage i after a micro-batch.
func (w *twin) covered(i, id int) float64 {
	return float64(id%w.group(i)/w.c.Plan.MicroBatches + 1)
}

// takes returns the replicas of stage i that compute a micro-batch, and the rows of each.
func (w *twin) takes(i, id int) (replicas []int, of []span) {
	n, micro := len(w.stages[i]), w.c.Plan.MicroBatch
	if w.split {
		for r := range n {
			replicas, of = append(replicas, r), append(of, span{r * micro / n, (r + 1) * micro / n})
		}
		return replicas, of
	}
	if w.sync {
		id %= w.c.Plan.MicroBatches
	}
	return []int{id % n}, []span{{0, micro}}
}

// whole holds the values across one cut, with all rows.
type whole map[int]struct {
	dtype engine.DType
	shape []int64
	data  []byte
}

// add appends the rows of a replica to those of the earlier replicas.
func (w *twin) add(to whole, some stage.Tensors) error {
	for v, t := range some {
		data, err := w.dev.(viewer).View(t)
		if err != nil {
			return err
		}
		x, later := to[v]
		if later {
			x.shape[0] += t.Shape()[0]
		} else {
			x.dtype, x.shape = t.DType(), slices.Clone(t.Shape())
		}
		x.data = append(x.data, data...)
		to[v] = x
	}
	some.Free()
	return nil
}

// some returns rows of the values across a cut.
func (w *twin) some(from whole, r span) (stage.Tensors, error) {
	out := stage.Tensors{}
	for v, x := range from {
		row := len(x.data) / int(x.shape[0])
		shape := slices.Clone(x.shape)
		shape[0] = int64(r.to - r.from)
		t, err := w.dev.FromBytes(x.dtype, shape, x.data[r.from*row:r.to*row])
		if err != nil {
			return nil, err
		}
		out[v] = w.dev.Disown(t)
	}
	return out, nil
}

// feed adds the model inputs that a stage reads, for some rows of a step's batch.
func (w *twin) feed(s *stage.Stage, given stage.Tensors, step, first, n int) error {
	b, err := w.c.Data.Train.Batch(step, w.c.Plan.Batch(), first, n)
	if err != nil {
		return err
	}
	for _, v := range s.Feeds() {
		if given[v], err = stage.TensorOf(w.dev, w.c.Engine.Float(), b, s.Graph.Name(v)); err != nil {
			return err
		}
	}
	return nil
}

// through takes a micro-batch forward through all stages and back.
func (w *twin) through(id int) error {
	per := w.c.Plan.MicroBatches
	step, index := id/per, id%per
	if w.batch != nil {
		step = w.batch(step)
	}
	between := whole{}
	for i, replicas := range w.stages {
		next := whole{}
		which, of := w.takes(i, id)
		for k, r := range which {
			s := replicas[r]
			if err := w.load(s, w.versions[i][w.version(i, id, r, false)]); err != nil {
				return err
			}
			given, err := w.some(between, of[k])
			if err != nil {
				return err
			}
			first, n := of[k].from, of[k].to-of[k].from
			if err := w.feed(s, given, step, index*w.c.Plan.MicroBatch+first, n); err != nil {
				return err
			}
			micro := stage.Micro{ID: id, Step: step, Index: index, FirstRow: first, Rows: n, Version: s.Versions.Newest()}
			out, loss, err := s.Forward(micro, given)
			if err != nil {
				return err
			}
			if loss != nil {
				loss.Free()
			}
			if err := w.add(next, out); err != nil {
				return err
			}
		}
		if i+1 < len(w.stages) {
			w.crosses(next, id, i, i+1)
		}
		between = next
	}
	between = whole{}
	for i, replicas := range slices.Backward(w.stages) {
		next := whole{}
		which, of := w.takes(i, id)
		for k, r := range which {
			given, err := w.some(between, of[k])
			if err != nil {
				return err
			}
			if err := w.load(replicas[r], w.versions[i][w.version(i, id, r, true)]); err != nil {
				return err
			}
			back, err := replicas[r].Backward(id, given, float64((of[k].to-of[k].from))/float64(w.c.Plan.Batch()))
			if err != nil {
				return err
			}
			if err := w.add(next, back); err != nil {
				return err
			}
		}
		if i > 0 {
			w.crosses(next, id, i, i-1)
		}
		between = next
	}
	return nil
}
