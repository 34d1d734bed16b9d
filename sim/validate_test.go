package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// normed generates and lowers an order whose updates need the gradient norm.
func normed(t *testing.T, order string, S, M, repeat int, later bool) *schedule.Program {
	t.Helper()
	p, err := family.Generate(order, schedule.Settings{Placement: straight(S), MicroBatches: M, Repeat: repeat})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{Clip: true, PostValidate: later})
	}
	if err == nil {
		_, err = check.Check(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPostValidation (arXiv 2401.10241, §4): an update that waits for the norm of all S stages makes them start each
// step together. F, I and W are the times of a forward, an input gradient and a weight gradient, with F = I = W. A step
// of ZB-H2 with M micro-batches, M >= 2S, then takes not M(F+I+W) + U but
//
//	M(F+I+W) + (S-1)F + N + U
//
// with a norm of N and an update of U, because the last stage begins S-1 forwards late in every step. If updates are
// validated in the next step, it takes M(F+I+W) + U, as without a norm. This is true while N <= F, the last stage's one
// forward before its first gradient.
func TestPostValidation(t *testing.T) {
	const U = 0.25
	for _, S := range []int{2, 3, 4, 8} {
		for _, M := range []int{2 * S, 4 * S, 2*S + 1} {
			for _, N := range []float64{0, 0.25, 0.5, 1} {
				c := chunked(S, 1, 1, 1, 1)
				for i := range c.Stages {
					c.Stages[i][0].NormS, c.Stages[i][0].UpdateS = N, U
				}
				for later, want := range map[bool]float64{false: 3*float64(M) + float64(S-1) + N + U, true: 3*float64(M) + U} {
					_, sum, err := Run(normed(t, "zb-h2", S, M, 6, later), c, Options{})
					if err != nil {
						t.Fatal(err)
					}
					exactly(t, sum.StepS, want, "S=%d M=%d N=%v, validated later: %v", S, M, N, later)
				}
			}
		}
	}
}

// TestPostValidationMemory: from its update to the validation, a stage keeps a copy to undo the update, and the
// gradients. The peaks are higher by that copy, because the forwards of the next step run meanwhile.
func TestPostValidationMemory(t *testing.T) {
	const S, M, fixed, gradients = 4, 8, 1000, 100
	c := chunked(S, 1, 1, 1, 1)
	for i := range c.Stages {
		c.Stages[i][0].FixedBytes, c.Stages[i][0].ParameterBytes = fixed, gradients
	}
	for _, later := range []bool{false, true} {
		_, sum, err := Run(normed(t, "zb-h2", S, M, 3, later), c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for w, got := range sum.PeakBytes {
			// Each forward before the first gradient holds one byte. The input half of a backward frees that byte, and
			// the weight half keeps nothing here.
			want := int64(fixed + gradients + 2*(S-w) - 1)
			if later {
				want += fixed
			}
			if got != want {
				t.Errorf("worker %d, validated later %v: %d bytes, want %d", w, later, got, want)
			}
		}
	}
}
