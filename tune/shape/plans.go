package shape

import (
	"errors"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune/predict"
)

// Planned is any plan for devices that are only described, with its model's costs.
type Planned struct {
	Model   *model.Model
	Cluster *cluster.Cluster
	Plan    *plan.Plan
	Clip    bool
	// Costs returns the model's profile on a variant of Cluster.
	Costs func(c *cluster.Cluster) (*profile.Profile, error)
}

// ErrStream is the error for a plan without a flush, whose steps overlap, and for a plan with several pipelines.
var ErrStream = errors.New("shape: a step is taken apart where it ends in a flush; this plan's minibatches overlap")

// Explain breaks down one simulated step of a plan. It also returns the step time with each assumption a tenth worse.
// The parts are those of the device that computes longest. The parts of messages and of sums say how much shorter the
// step would be without them. Explain keeps the plan as it is, although another plan may be better under a changed
// assumption. It returns ErrStream for a plan without a flush or with several pipelines.
func (p Planned) Explain() (*Prediction, []Sensitivity, error) {
	if !schedule.Policy(p.Plan.Weights).Synchronous() || p.Plan.Together() > 1 {
		return nil, nil, ErrStream
	}
	if err := predict.CheckWork(p.Plan, predict.OftenPlayed); err != nil {
		return nil, nil, err
	}
	costs, err := p.Costs(p.Cluster)
	if err != nil {
		return nil, nil, err
	}
	out := &Prediction{Shape: Shape{Batch: p.Plan.Batch()}, Fits: true}
	if err := p.takeApart(out, costs); err != nil {
		return nil, nil, err
	}
	var all []Sensitivity
	for _, a := range assumptions(p.Cluster, len(p.Cluster.Devices)) {
		other := a.made(p.Cluster)
		changed, err := p.Costs(other)
		if err != nil {
			return nil, nil, err
		}
		predicted, err := predict.Plan(changed, other, p.Plan, p.Clip)
		if err != nil {
			return nil, nil, err
		}
		_, over := predict.Over(other, p.Plan, &predicted)
		all = append(all, Sensitivity{Assumption: a.what, StepS: predicted.StepS, Fits: over <= 0})
	}
	predicted, err := predict.Plan(costs, p.Cluster, p.Plan, p.Clip)
	if err != nil {
		return nil, nil, err
	}
	for i := range all { // scale to the step that was broken down, which is a single step
		all[i].StepS *= out.StepS / predicted.StepS
	}
	return out, all, nil
}

// takeApart fills in the step time and its parts.
func (p Planned) takeApart(out *Prediction, costs *profile.Profile) error {
	of, err := sim.CostsOf(costs, p.Cluster, p.Plan)
	if err != nil {
		return err
	}
	plain := *p.Plan // the plan without recompute and sharding
	plain.Shard, plain.Stages = plan.ShardNothing, slices.Clone(p.Plan.Stages)
	for s := range plain.Stages {
		plain.Stages[s].Recompute = plan.KeepAll
	}
	kept := plain
	kept.Shard = p.Plan.Shard
	whole, err := sim.CostsOf(costs, p.Cluster, &plain)
	if err != nil {
		return err
	}
	keeping, err := sim.CostsOf(costs, p.Cluster, &kept)
	if err != nil {
		return err
	}
	program, err := programs.Build(p.Plan, costs.TiedLayers(), p.Clip, 1)
	if err != nil {
		return err
	}
	q := &out.Parts
	if out.StepS, err = lasts(program, of); err != nil {
		return err
	}
	apart := out.StepS
	if of.Ports != nil {
		of.Ports = nil
		if apart, err = lasts(program, of); err != nil {
			return err
		}
	}
	of = without(of, func(k *sim.StageCost) { k.AllReduceS, k.GatherS, k.TiedS, k.NormS = 0, 0, 0, 0 })
	unsummed, err := lasts(program, of)
	if err != nil {
		return err
	}
	of.Transfer, of.SendS, of.ReceiveS = nil, 0, 0
	silent, err := lasts(program, of)
	if err != nil {
		return err
	}
	q.ContentionS = max(0, out.StepS-apart)
	q.GradientsS, q.TransfersS = max(0, apart-unsummed), max(0, unsummed-silent)
	most := 0.0
	for _, list := range program.Body {
		var own Parts
		for _, in := range list {
			p.add(&own, in, of, keeping, whole)
		}
		if busy := own.KernelsS + own.AgainS + own.GatherS + own.UpdateS; busy > most {
			most = busy
			own.GradientsS, own.TransfersS, own.ContentionS = q.GradientsS, q.TransfersS, q.ContentionS
			*q = own
			if err := p.byKind(q, list); err != nil {
				return err
			}
		}
	}
	q.BubbleS = max(0, out.StepS-q.ContentionS-q.GradientsS-q.TransfersS-most)
	return nil
}

// add adds the time of one instruction to the parts. `of` holds the plan's costs, `keeping` those without recompute,
// and `whole` those without recompute and sharding.
func (p Planned) add(q *Parts, in schedule.Instruction, of, keeping, whole sim.Costs) {
	s, r := int(in.Stage), int(in.Replica)
	at := func(c sim.Costs) *sim.StageCost { return &c.Stages[s][min(r, len(c.Stages[s])-1)] }
	takes := func(of func(k *sim.StageCost) float64, all, kept, plain *sim.StageCost) {
		q.KernelsS += of(plain)
		q.GatherS += of(kept) - of(plain)
		q.AgainS += of(all) - of(kept)
	}
	a, k, w := at(of), at(keeping), at(whole)
	switch in.Kind {
	case schedule.F:
		takes(func(k *sim.StageCost) float64 { return k.ForwardS }, a, k, w)
	case schedule.B:
		takes(func(k *sim.StageCost) float64 { return k.BackwardS }, a, k, w)
	case schedule.I:
		takes(func(k *sim.StageCost) float64 { return k.InputS }, a, k, w)
	case schedule.W:
		takes(func(k *sim.StageCost) float64 { return k.WeightS }, a, k, w)
	case schedule.U:
		q.UpdateS += a.UpdateS
	}
}

// byKind fills in what limits the kernels of a list's forwards and backwards, if the devices have kernels. It also
// moves the time of sums in groups from KernelsS to SumsS.
func (p Planned) byKind(q *Parts, list schedule.List) error {
	for _, in := range list {
		if in.Kind != schedule.F {
			continue
		}
		st := p.Plan.Stages[in.Stage]
		name := p.Cluster.Devices[st.Devices[min(int(in.Replica), len(st.Devices)-1)]]
		d := p.Cluster.DeviceTypes[name]
		if d.Kernels == nil || p.Plan.Order != nil {
			return nil
		}
		rows := p.Plan.MicroBatch
		if p.Plan.Replication == string(schedule.Split) {
			rows = (rows + len(st.Devices) - 1) / len(st.Devices)
		}
		for l := st.FirstLayer; l <= st.LastLayer; l++ {
			cost, err := kernels.Of(p.Model, l, rows, name, d, kernels.Options{Precision: p.Plan.Precision})
			if err != nil {
				return err
			}
			q.Spent, q.SumsS = q.Spent.Plus(cost.Spent, 1), q.SumsS+cost.SummedS
		}
	}
	q.KernelsS -= q.SumsS
	return nil
}

// lasts returns the time of one step of a Program.
func lasts(p *schedule.Program, of sim.Costs) (float64, error) {
	_, sum, err := sim.Run(p, of, sim.Options{})
	return sum.EndS, err
}

// without returns a copy of costs with a change to every stage.
func without(of sim.Costs, change func(*sim.StageCost)) sim.Costs {
	stages := make([][]sim.StageCost, len(of.Stages))
	for s := range of.Stages {
		stages[s] = slices.Clone(of.Stages[s])
		for r := range stages[s] {
			change(&stages[s][r])
		}
	}
	of.Stages = stages
	return of
}
