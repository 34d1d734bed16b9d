package schedule

import (
	"cmp"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/internal/kind"
)

func anyInstruction(t *rapid.T, name string) Instruction {
	return Instruction{
		Stage: int32(rapid.IntRange(0, MaxStage).Draw(t, name+" stage")), Micro: int32(rapid.IntRange(0,
			MaxMicro).Draw(t, name+" micro")),
		Pipeline: int16(rapid.IntRange(0, MaxPipeline).Draw(t, name+" pipeline")),
		Replica:  int16(rapid.IntRange(0, MaxReplica).Draw(t, name+" replica")),
		Kind:     rapid.SampledFrom(kind.All()).Draw(t, name+" kind"),
	}
}

// Keys are distinct for all possible instructions, and sort by kind, pipeline, replica, stage and micro-batch.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyInstruction(t, "a"), anyInstruction(t, "b")
		if got := a.Key().Instruction(); got != a {
			t.Fatalf("%v became %v", a, got)
		}
		want := cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.Replica,
			b.Replica),
			cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Micro, b.Micro))
		if got := cmp.Compare(a.Key(), b.Key()); got != want {
			t.Fatalf("%v against %v is %d, of their keys %d", a, b, want, got)
		}
	})
}

// A key has five bits for the kind. If there were too many kinds, two kinds would have the same keys.
func TestKindsFitAKey(t *testing.T) {
	for _, k := range kind.All() {
		if got := (Instruction{Kind: k}).Key().Instruction(); got.Kind != k {
			t.Errorf("kind %v becomes %v", k, got.Kind)
		}
	}
}
