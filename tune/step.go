package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// step counts what happens in one step of a plan, whatever the order of instructions.
type step struct {
	program   *schedule.Program // without instructions
	pipelines float64
}

func stepOf(pl *plan.Plan) step {
	_, settings := schedule.FromPlan(pl)
	return step{settings.Program(), float64(pl.Together())}
}

// updates returns the number of a stage's updates in a step, over all pipelines. In a stream whose replicas take
// minibatches in turn, the number is below 1.
func (s step) updates(stage int) float64 {
	return s.pipelines * float64(s.program.PerMinibatch()) / float64(s.program.UpdateSpan(0, stage))
}

// mostTurns limits the number of micro-batches that are examined until the replicas' turns repeat.
const mostTurns = 1 << 16

// linkS returns how long messages over the cut before a stage occupy their busiest link in a step, in seconds. twoWays
// says whether both directions use that link.
func (s step) linkS(stage int, costs *sim.Costs) (takenS float64, twoWays bool) {
	p := *s.program
	senders, receivers := p.Placement[0][stage-1], p.Placement[0][stage]
	micros := 1 // after this many micro-batches the pairs of replicas repeat
	if p.Replication != schedule.Split {
		micros = len(senders) / divisor(len(senders), len(receivers)) * len(receivers)
	}
	times := s.pipelines * float64(p.PerMinibatch())
	if p.Streams() { // replicas change their order at the end of a minibatch
		p.MicroBatches = micros
	}
	micros = min(micros, p.MicroBatches, mostTurns)
	times /= float64(micros)
	taken := map[[2]int][2]float64{} // by link: seconds in each direction
	send := func(way int, in schedule.Instruction, bytes int64) {
		from := p.WorkerOf(0, int(in.Stage), int(in.Replica))
		p.Recipients(in, func(to, lo, hi, n int) bool {
			_, each := costs.Transfer(from, to, bytes*int64(hi)/int64(n)-bytes*int64(lo)/int64(n))
			for _, link := range costs.Links(from, to) {
				ways := taken[link]
				ways[way] += times * each
				taken[link] = ways
			}
			return true
		})
	}
	for m := range micros {
		for _, r := range replicas(&p, m, senders) {
			send(0, schedule.Instruction{Stage: int32(stage - 1), Kind: schedule.SF, Micro: int32(m), Replica: int16(r)},
				costs.Stages[stage-1][r].Sends(schedule.SF))
		}
		for _, r := range replicas(&p, m, receivers) {
			send(1, schedule.Instruction{Stage: int32(stage), Kind: schedule.SB, Micro: int32(m), Replica: int16(r)},
				costs.Stages[stage][r].Sends(schedule.SB))
		}
	}
	for _, ways := range taken {
		both := ways[0] + ways[1]
		twoWays = both >= takenS && ways[0] > 0 && ways[1] > 0 || both <= takenS && twoWays
		takenS = max(takenS, both)
	}
	return takenS, twoWays
}

// replicas returns the replicas of a stage that compute a micro-batch, or a part of it.
func replicas(p *schedule.Program, micro int, on []int) []int {
	if p.Replication != schedule.Split {
		return []int{p.ReplicaOf(int32(micro), len(on))}
	}
	all := make([]int, len(on))
	for r := range all {
		all[r] = r
	}
	return all
}

// bottleneck says what takes most of the step: a device's computing, a cut's transfers, an all-reduce.
func bottleneck(c *cluster.Cluster, pl *plan.Plan, costs *sim.Costs) string {
	q := pl.Predicted
	devices := pl.Devices()
	busiest, most := 0, 0.0
	for i, b := range q.BusyS {
		if b > most {
			busiest, most = i, b
		}
	}
	what := "stage"
	var stages []string
	for s, st := range pl.Stages {
		if slices.Contains(st.Devices, devices[busiest]) {
			stages = append(stages, fmt.Sprint(s))
		}
	}
	if len(stages) > 1 {
		what = "stages"
	}
	text := fmt.Sprintf("worker %d (%s), %s %s, computes %.0f %% of the step", devices[busiest],
		c.Devices[devices[busiest]], what, strings.Join(stages, ", "), 100*most/q.StepS)
	step := stepOf(pl)
	for s := 1; s < len(pl.Stages); s++ {
		if total, twoWays := step.linkS(s, costs); total > most {
			most = total
			from, to, ways := pl.Stages[s-1].Devices, pl.Stages[s].Devices, " each way"
			if twoWays {
				ways = ""
			}
			text = fmt.Sprintf("the link between stages %d and %d (%s) is taken %.0f %% of the step%s", s-1, s,
				c.Levels[c.LevelOf(from[0], to[0])].Name, 100*total/q.StepS, ways)
		}
	}
	for s, st := range pl.Stages {
		if schedule.Policy(pl.Weights).Served() {
			continue // these stages have no sum
		}
		if sum := step.updates(s) * costs.Stages[s][0].AllReduceS; sum > most {
			most = sum
			text = fmt.Sprintf("the all-reduce of stage %d over %d devices takes %.0f %% of the step", s, len(st.Devices),
				100*sum/q.StepS)
		}
	}
	if q.Bubble > 0.1 {
		text += fmt.Sprintf("; workers wait for each other %.0f %% of the time", 100*q.Bubble)
	}
	return text
}

// firstStep simulates a plan's first step for a drawing. It returns nil if the drawing would be too large to read. A
// stream of single minibatches is simulated until every worker has had two minibatches.
func firstStep(r Request, pl *plan.Plan, costs sim.Costs) (*trace.Timeline, error) {
	if len(pl.Devices()) > 64 || pl.MicroBatches > 4096 {
		return nil, nil
	}
	steps := 1
	if !schedule.Policy(pl.Weights).Synchronous() && pl.MicroBatches == 1 {
		for i, s := range pl.Stages {
			steps = max(steps, 2*len(s.Devices)+len(pl.Stages)-1-i)
		}
	}
	program, err := programs.AtLeast(pl, r.Profile.TiedLayers(), r.Clip, steps)
	if err != nil {
		return nil, err
	}
	t, _, err := sim.Run(program, costs, sim.Options{Record: true, Vary: costs.Noise.Vary()})
	return t, err
}
