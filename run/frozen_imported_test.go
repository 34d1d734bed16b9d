package run

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
)

// backwards is an engine that counts the backwards of each worker.
type backwards struct {
	engine.Engine
	of *[3]atomic.Int64
}

func (e backwards) Open(worker, threads int) (engine.Device, error) {
	d, err := e.Engine.Open(worker, threads)
	return countingDevice{d, &e.of[worker]}, err
}

type countingDevice struct {
	engine.Device
	ran *atomic.Int64
}

func (d countingDevice) Backward(outputs, grads []engine.Tensor) error {
	d.ran.Add(1)
	return d.Device.Backward(outputs, grads)
}

func (d countingDevice) BackwardInput(outputs, grads []engine.Tensor) (engine.Work, error) {
	d.ran.Add(1)
	return d.Device.BackwardInput(outputs, grads)
}

// Only the head of an imported backbone learns; two of its three stages are frozen. It trains like PyTorch with
// requires_grad_(False): losses and the parameters that learn agree to 1e-4. So do the running statistics of frozen
// batch norms, which still change. Frozen parameters keep their bits. Their stages run no backward and are sent no
// gradient.
func TestAFrozenBackboneTrainsAsPyTorchDoes(t *testing.T) {
	e := torchEngine(t)
	answers := torchtest.Run(t,
		torchtest.Request{Name: "resnet18", File: "vision.py", Rate: 0.05, Frozen: []string{"network.conv1", "network.bn1",
			"network.layer"}},
		torchtest.Request{Name: "vit_b_16", File: "vision.py", Rate: 0.05, Frozen: []string{"network.conv_proj",
			"network.encoder", "network.class_token"}})
	patterns := [][]string{{"network.conv1", "network.bn1", "network.layer?"}, {"network.[ce]*"}}
	for i, a := range answers {
		if a.Code != 0 {
			t.Fatal(a.Said)
		}
		numbers := torchtest.Read(t, a.Numbers)
		for _, how := range []struct{ fuse, family string }{{imported.Off, "1f1b"}, {imported.Fused, "zb-h1"}} {
			t.Run(a.Name+" "+how.fuse+" "+how.family, func(t *testing.T) {
				n, err := imported.Open(a.Model, imported.Options{Fuse: how.fuse})
				if err == nil {
					err = n.Model.Freeze(patterns[i])
				}
				if err != nil {
					t.Fatal(err)
				}
				m := n.Model
				head := slices.IndexFunc(m.Layers, func(l model.Layer) bool {
					return slices.ContainsFunc(l.Params, func(p model.Param) bool { return p.Learned() })
				})
				var ran [3]atomic.Int64
				c := basic(t, backwards{e, &ran}, m, planOf(m, []int{head / 2, head - 1}, 2, 2, how.family), 0, 50)
				c.Data.Train, c.Train.Optimizer.Momentum, c.Train.Rate.Base = recorded{m, numbers}, 0.9, 0.05
				c.Keep.Steps = 1
				got := train(t, c)
				likePyTorch(t, got, numbers, 2, 1e-4)
				if ran[0].Load()+ran[1].Load() != 0 || ran[2].Load() == 0 {
					t.Errorf("%d and %d backwards ran on stages that are frozen, and %d behind them", ran[0].Load(), ran[1].Load(),
						ran[2].Load())
				}
				c.Engine = e
				if err := learnsOnly(t, c, got); err != nil {
					t.Error(err)
				}
				forward, back := int64(0), int64(0)
				for _, event := range got.Timeline.Events {
					switch event.Kind {
					case "SF", "RF":
						forward += event.Bytes
					case "SB", "RB":
						back += event.Bytes
					}
				}
				if forward == 0 || back != 0 {
					t.Errorf("%d bytes go forward, and %d of gradients come back", forward, back)
				}
			})
		}
	}
}
