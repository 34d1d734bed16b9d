package launch

import (
	"strings"
	"testing"
)

// FromEnv returns a consistent world or an error for any environment.
func FuzzFromEnv(f *testing.F) {
	for _, env := range []string{ours, torchrun, slurmTask, slurmBatch, slurmOneAHost, openMPI, hydra, pals, indexedPod,
		jobSetPod, trainPod,
		slurmOneAHost + " " + torchrun} {
		f.Add(env)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := FromEnv(strings.Fields(text))
		if err != nil {
			return
		}
		local := w.LocalRank <= w.Rank && w.LocalSize <= w.Size && (w.LocalSize == Unknown || w.LocalRank < w.LocalSize)
		if w.Rank < 0 || w.Rank >= w.Size || w.Size > MaxSize || !local || w.Node >= max(w.Nodes, 1) && w.Nodes != Unknown {
			t.Errorf("%q: %+v", text, w)
		}
		if w.Size > 1 && (w.Address == "" || w.Port < 1 || w.Port > maxPort) {
			t.Errorf("%q: %+v is met nowhere", text, w)
		}
	})
}

// Any text is refused, or read as a list of 1 to maxHosts hosts. The first and the last host have names, and there is
// no host after the last.
func FuzzHosts(f *testing.F) {
	f.Add("gnode[10,20-23],login1")
	f.Add("r[1-2]n[07-08]-ib,x")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseHosts(text)
		if err != nil {
			return
		}
		if l.count < 1 || l.count > maxHosts || l.name(0) == "" || l.name(l.count-1) == "" || l.name(l.count) != "" {
			t.Errorf("%q: %d hosts from %q to %q", text, l.count, l.name(0), l.name(l.count-1))
		}
	})
}
