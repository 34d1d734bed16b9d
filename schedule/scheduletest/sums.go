package scheduletest

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

func (r *replay) tied(stage int32) bool {
	return slices.ContainsFunc(r.p.Tied, func(g []int) bool { return slices.Contains(g, int(stage)) })
}

// chain returns the collectives that a stage's update needs, in order.
func (r *replay) chain(stage int32) []schedule.Kind {
	var out []schedule.Kind
	if len(r.stages[stage]) > 1 {
		out = append(out, schedule.AR)
	}
	if r.tied(stage) {
		out = append(out, schedule.TG)
	}
	if r.p.Clip {
		out = append(out, schedule.GN)
	}
	return out
}

func isSum(k schedule.Kind) bool { return k == schedule.AR || k == schedule.TG || k == schedule.GN }

// all reports whether every member of a collective has reached it.
func (r *replay) all(in schedule.Instruction) bool {
	for s, on := range r.stages {
		if in.Kind == schedule.AR && s != int(in.Stage) || in.Kind == schedule.TG && !r.together(in.Stage, s) {
			continue
		}
		for replica, w := range on {
			m := in
			m.Stage, m.Replica = int32(s), int16(replica)
			if !r.made[w][m] {
				return false
			}
		}
	}
	return true
}

// together reports whether two stages are in one tied group.
func (r *replay) together(a int32, b int) bool {
	return slices.ContainsFunc(r.p.Tied, func(g []int) bool {
		return slices.Contains(g, int(a)) &&
			slices.Contains(g, b)
	})
}
