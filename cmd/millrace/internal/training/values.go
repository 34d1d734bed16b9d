package training

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/pace"
	"github.com/millrace-ml/millrace/trace"
)

// values computes the values that the metrics sinks receive during a run.
type values struct {
	samples    int64 // samples trained on, including those before this run
	each       int64 // samples per step
	stragglers map[int]float64
}

// step returns the values of a step.
func (v *values) step(s run.StepReport) metrics.StepValues {
	v.samples += v.each
	out := metrics.StepValues{
		Time: time.Now(), Step: trace.StepNumber(s.Step), Loss: s.Loss, LearningRate: s.Rate,
		GradientNorm: s.GradientNorm, StepS: s.Seconds, SamplesPerSecond: s.SamplesPerSecond, Bubble: s.Bubble,
		Samples: v.samples, Stragglers: v.stragglers,
	}
	for _, did := range s.Workers {
		out.BusyS = append(out.BusyS, did.BusyS)
		out.PeakBytes, out.LiveBytes = append(out.PeakBytes, did.PeakBytes), append(out.LiveBytes, did.LiveBytes)
		out.SentBytes = append(out.SentBytes, did.SentBytes)
		out.ReceivedBytes = append(out.ReceivedBytes, did.ReceivedBytes)
	}
	return out
}

// pace records which workers are stragglers now.
func (v *values) pace(p run.Pace) {
	switch {
	case p.Worker == pace.All:
	case p.Over:
		delete(v.stragglers, p.Worker)
	default:
		v.stragglers[p.Worker] = p.Times
	}
}

// named returns the host and the stages of each worker of a plan. Without hosts, all workers are on this host.
func named(p *plan.Plan, hosts []string) []metrics.Worker {
	here := cli.HostName()
	devices := p.Devices()
	all := make([]metrics.Worker, len(devices))
	for k := range all {
		all[k].Host = here
		if hosts != nil {
			all[k].Host = hosts[k]
		}
		var stages []string
		for i, s := range p.Stages {
			if slices.Contains(s.Devices, devices[k]) {
				stages = append(stages, strconv.Itoa(i))
			}
		}
		all[k].Stage = strings.Join(stages, ",")
	}
	return all
}
