package trace

import (
	"cmp"
	"fmt"
	"slices"
)

// Rounded says how much rounding to fewer bits changed what a stage sent.
type Rounded struct {
	Stage    int     `json:"stage"` // the stage that sends
	Kind     string  `json:"kind"`  // SF: activations; SB: gradients
	Format   string  `json:"format"`
	Absolute float64 `json:"absolute"` // the largest change of a number
	Relative float64 `json:"relative"` // largest ratio of a change to the largest number of the same sample and tensor
	Beyond   int64   `json:"beyond"`   // how many numbers were too large for the format, and became its largest
}

// JoinRounded combines the records of two parts of a run, ordered by stage.
func JoinRounded(a, b []Rounded) []Rounded {
	all := slices.Clone(a)
	for _, r := range b {
		at := slices.IndexFunc(all, func(s Rounded) bool { return s.Stage == r.Stage && s.Kind == r.Kind })
		if at < 0 {
			all = append(all, r)
			continue
		}
		s := &all[at]
		s.Absolute, s.Relative, s.Beyond = max(s.Absolute, r.Absolute), max(s.Relative, r.Relative), s.Beyond+r.Beyond
	}
	slices.SortFunc(all, func(a, b Rounded) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), -cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// checkRounded refuses records with a stage that does not exist, or with impossible numbers.
func (t *Timeline) checkRounded() error {
	for i, r := range t.Rounded {
		right := finite(r.Absolute) && finite(r.Relative) && min(r.Absolute, r.Relative, float64(r.Beyond)) >= 0
		if !right || r.Stage < 0 || r.Stage >= t.Stages {
			return fmt.Errorf("trace: rounded[%d]: stage %d of %d, absolute %v, relative %v, beyond %d: want a stage, and "+
				"finite numbers of 0 or more", i, r.Stage, t.Stages, r.Absolute, r.Relative, r.Beyond)
		}
	}
	return nil
}
