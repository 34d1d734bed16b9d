package tune

import "github.com/millrace-ml/millrace/schedule"

// SideBySide is several pipelines that share their workers in turn, instruction by
// instruction, each in its own 1F1B order and with its own flush: AvgPipe's parallel pipelines
// without what holds them together. A worker takes pipeline 0's next instruction, then
// pipeline 1's, and so on, so that no pipeline can block another for good: what each waits
// for stands in front of it on every worker.
func SideBySide(s schedule.Settings, pipelines int) (*schedule.Program, error) {
	s.Weights = schedule.Sync
	one, err := schedule.Generate("1f1b", s)
	if err != nil {
		return nil, err
	}
	all := *one
	all.Placement, all.Body = nil, make(schedule.Part, len(one.Body))
	for range pipelines {
		all.Placement = append(all.Placement, one.Placement[0])
	}
	for w, list := range one.Body {
		for _, in := range list {
			for p := range pipelines {
				in.Pipeline = int16(p)
				all.Body[w] = append(all.Body[w], in)
			}
		}
	}
	return &all, nil
}
