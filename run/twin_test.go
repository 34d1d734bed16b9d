package run

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/run/stage"
	"github.com/millrace-ml/millrace/schedule"
)

// twin is a plain sequential program for plans of any replication under any weight policy:
// micro-batch after micro-batch goes through all stages and back at once, with the version
// of the weights that the policy's equation gives it written into the parameters first. No
// Program, Gate, wire or held version takes part.
type twin struct {
	c        Config
	dev      engine.Device
	stages   [][]*stage.Stage // by stage and replica
	versions [][][][]byte     // by stage and version: the parameters' bytes
	version  func(stage, micro, replica int) int
	sync     bool
	split    bool
	micros   int       // in all
	norms    []float64 // of the gradients of all updates, where they are clipped
}

// sequential runs a twin and returns its final weights.
func sequential(t testing.TB, c Config, version func(stage, micro, replica int) int) map[string]Weight {
	t.Helper()
	out, _ := sequentially(t, c, version)
	return out
}

// sequentially also says the gradient norms of all updates, where they are clipped.
func sequentially(t testing.TB, c Config, version func(stage, micro, replica int) int) (weights map[string]Weight, norms []float64) {
	t.Helper()
	w := newTwin(c, version)
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- guarded(func() (err error) {
			weights, err = w.run()
			return err
		})
	}()
	if err := <-done; err != nil {
		t.Fatal("twin: ", err)
	}
	return weights, w.norms
}

func newTwin(c Config, version func(stage, micro, replica int) int) *twin {
	weights := schedule.Policy(c.Plan.Weights)
	return &twin{
		c: c, version: version, sync: weights == schedule.Sync || weights == "",
		split: c.Plan.Replication == string(schedule.Split), micros: c.Steps * c.Plan.MicroBatches,
	}
}

func (w *twin) run() (map[string]Weight, error) {
	var err error
	if w.dev, err = w.c.Engine.Open(0, 1); err != nil {
		return nil, err
	}
	defer w.dev.Close()
	graph, err := stage.NewGraph(w.c.Model)
	if err != nil {
		return nil, err
	}
	layers, err := nn.Build(w.c.Model)
	if err != nil {
		return nil, err
	}
	for _, p := range w.c.Plan.Stages {
		var replicas []*stage.Stage
		for range p.Devices {
			s, err := stage.New(stage.Config{
				Device: w.dev, Float: w.c.Engine.Float(), Graph: graph, First: p.FirstLayer, Last: p.LastLayer, Layers: layers,
				Seed: w.c.Seed, States: w.c.Optimizer.States(),
			})
			if err != nil {
				return nil, err
			}
			defer s.Close()
			replicas = append(replicas, s)
		}
		w.stages = append(w.stages, replicas)
		first, err := w.bytes(replicas[0])
		if err != nil {
			return nil, err
		}
		w.versions = append(w.versions, [][][]byte{first})
	}
	for id := range w.micros {
		if err := w.through(id); err != nil {
			return nil, err
		}
		if err := w.updates(id); err != nil {
			return nil, err
		}
	}
	out := map[string]Weight{}
	for i, replicas := range w.stages {
		if err := w.load(replicas[0], w.latest(i)); err != nil {
			return nil, err
		}
		for _, p := range append(replicas[0].Params(), replicas[0].Buffers()...) {
			if !p.Buffer && !replicas[0].Owns(p) {
				continue
			}
			data, err := w.dev.View(p.Value)
			if err != nil {
				return nil, err
			}
			out[p.Name] = Weight{DType: p.Value.DType(), Shape: p.Value.Shape(), Data: bytes.Clone(data)}
		}
	}
	return out, nil
}

func (w *twin) latest(i int) [][]byte { return w.versions[i][len(w.versions[i])-1] }

// bytes copies the parameters of a stage, load writes them.
func (w *twin) bytes(s *stage.Stage) ([][]byte, error) {
	var all [][]byte
	for _, p := range s.Params() {
		data, err := w.dev.View(p.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, bytes.Clone(data))
	}
	return all, nil
}

func (w *twin) load(s *stage.Stage, from [][]byte) error {
	for i, p := range s.Params() {
		data, err := w.dev.View(p.Value)
		if err != nil {
			return err
		}
		copy(data, from[i])
	}
	return nil
}

// group is the micro-batches that an update of stage i covers.
func (w *twin) group(i int) int {
	if per := w.c.Plan.MicroBatches; w.sync || w.split || per > 1 {
		return per
	}
	return len(w.stages[i])
}

// takes is the replicas of stage i that compute a micro-batch, and the rows of each.
func (w *twin) takes(i, id int) (replicas []int, of []rows) {
	n, micro := len(w.stages[i]), w.c.Plan.MicroBatch
	if w.split {
		for r := range n {
			replicas, of = append(replicas, r), append(of, rows{r * micro / n, (r + 1) * micro / n})
		}
		return replicas, of
	}
	if w.sync {
		id %= w.c.Plan.MicroBatches
	}
	return []int{id % n}, []rows{{0, micro}}
}

// whole is the values across one cut, of all rows.
type whole map[int]struct {
	dtype engine.DType
	shape []int64
	data  []byte
}

// add puts the rows of a replica behind those of the ones before it.
func (w *twin) add(to whole, some stage.Tensors) error {
	for v, t := range some {
		data, err := w.dev.View(t)
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

// some is rows of the values across a cut.
func (w *twin) some(from whole, r rows) (stage.Tensors, error) {
	out := stage.Tensors{}
	for v, x := range from {
		row := len(x.data) / int(x.shape[0])
		shape := slices.Clone(x.shape)
		shape[0] = int64(r.len())
		t, err := w.dev.FromBytes(x.dtype, shape, x.data[r.Lo*row:r.Hi*row])
		if err != nil {
			return nil, err
		}
		out[v] = w.dev.Disown(t)
	}
	return out, nil
}

// through takes a micro-batch forward through all stages and back.
func (w *twin) through(id int) error {
	per := w.c.Plan.MicroBatches
	step, index := id/per, id%per
	between := whole{}
	for i, replicas := range w.stages {
		next := whole{}
		which, of := w.takes(i, id)
		for k, r := range which {
			s := replicas[r]
			if err := w.load(s, w.versions[i][w.version(i, id, r)]); err != nil {
				return err
			}
			given, err := w.some(between, of[k])
			if err != nil {
				return err
			}
			feeder := &worker{dev: w.dev, job: &job{engine: w.c.Engine}}
			if err := feeder.feed(&holding{Stage: s}, given, w.c.Data.Train, step, w.c.Plan.Batch(), index*w.c.Plan.MicroBatch+of[k].Lo, of[k].len()); err != nil {
				return err
			}
			out, _, err := s.Forward(stage.Micro{ID: id, Step: step, Index: index, FirstRow: of[k].Lo, Rows: of[k].len(), Version: s.Version()}, given)
			if err != nil {
				return err
			}
			if err := w.add(next, out); err != nil {
				return err
			}
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
			g := w.group(i)
			gathered := min(g, w.micros-id/g*g)
			back, err := replicas[r].Backward(id, given, float64(of[k].len())/float64(w.c.Plan.MicroBatch*gathered))
			if err != nil {
				return err
			}
			if err := w.add(next, back); err != nil {
				return err
			}
		}
		between = next
	}
	return nil
}

// updates makes the updates that are due behind a micro-batch: sums over replicas in rank
// order, over the uses of tied parameters in layer order, the norm in model order.
func (w *twin) updates(id int) error {
	var due []int
	for i := range w.stages {
		if g := w.group(i); (id+1)%g == 0 || id == w.micros-1 {
			due = append(due, i)
		}
	}
	for _, i := range due {
		// Asynchronous data parallelism sums buffers at the end alone.
		if err := sumReplicas(w.c.Engine, w.stages[i], w.c.Plan.Schedule != "dp-async" || id == w.micros-1); err != nil {
			return err
		}
	}
	if err := w.sumTied(due); err != nil {
		return err
	}
	scale := 1.0
	if w.c.Clip > 0 && len(due) > 0 {
		if len(due) < len(w.stages) {
			return fmt.Errorf("stages update apart; there is no common norm")
		}
		var squares []float64
		for _, i := range due {
			vectors, err := w.stages[i][0].Norms()
			if err != nil {
				return err
			}
			for _, v := range vectors {
				squares = append(squares, stage.SquareSum(v))
			}
		}
		norm := stage.GlobalNorm(squares)
		w.norms = append(w.norms, norm)
		scale = optim.ClipScale(norm, w.c.Clip)
	}
	step := id / w.c.Plan.MicroBatches
	for _, i := range due {
		for _, s := range w.stages[i] {
			if err := w.load(s, w.latest(i)); err != nil {
				return err
			}
			if err := s.Update(w.c.Optimizer, optim.Step{Count: step + 1, Rate: w.c.Rate.At(step), GradScale: scale}, stage.Replace); err != nil {
				return err
			}
		}
		now, err := w.bytes(w.stages[i][0])
		if err != nil {
			return err
		}
		w.versions[i] = append(w.versions[i], now)
	}
	return nil
}

// sumTied adds up what all stages' layers have for each parameter they share.
func (w *twin) sumTied(due []int) error {
	uses := map[string][]stage.TiedUse{}
	firsts := map[string][]stage.TiedUse{} // the first use on each replica, which gets the sum
	for _, i := range due {
		for r, s := range w.stages[i] {
			all, err := s.TiedUses()
			if err != nil {
				return err
			}
			seen := map[string]bool{}
			for _, u := range all {
				if r == 0 {
					uses[u.Param.Name] = append(uses[u.Param.Name], u)
				}
				if !seen[u.Param.Name] {
					firsts[u.Param.Name] = append(firsts[u.Param.Name], u)
				}
				seen[u.Param.Name] = true
			}
		}
	}
	for name, terms := range uses {
		slices.SortFunc(terms, func(a, b stage.TiedUse) int { return a.Layer - b.Layer })
		total := bytes.Clone(terms[0].Data)
		for _, u := range terms[1:] {
			if err := w.c.Engine.SumInto(total, u.Data, u.DType); err != nil {
				return err
			}
		}
		for _, u := range firsts[name] {
			copy(u.Data, total)
		}
	}
	return nil
}
