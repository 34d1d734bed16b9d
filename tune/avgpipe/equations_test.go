package avgpipe

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// two returns a profiled setting that is small enough to work out by hand: M = 4, N = 1, two devices.
func two() Observation {
	return Observation{At: Degrees{4, 1}, Devices: []Observed{
		{Utilisation: Curve{{4, 0.5}}, CommunicationS: 2, ModelBytes: 100, DataBytes: 40, ReferenceBytes: 20, Held: 3},
		{Utilisation: Curve{{2, 0.4}, {2, 0.8}}, CommunicationS: 1, ModelBytes: 60, DataBytes: 80, ReferenceBytes: 10,
			Held: 1},
	}}
}

// TestPredictByHand compares each term of the equations with values worked out by hand from the paper's text.
func TestPredictByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		to   Degrees
		form Form
		step float64
		want []DevicePrediction
	}{
		// The curves rise fourfold: on device 0 to 2, on device 1 to 1.6 and 3.2. The area above 1 is 4 on device 0,
		// and 1.2 + 4.4 on device 1.
		{"both degrees", Degrees{2, 2}, Printed, 7.2, []DevicePrediction{
			{ComputeS: (4 + 4) / 4.0, CommunicationS: 4, BlockedS: 4/2.0 + (4-2)/2.0, UpS: 0, DownS: (2 + 2.4) / 2,
				MemoryBytes: 2*100 + 4*40},
			{ComputeS: (4 + 5.6) / 4, CommunicationS: 2, BlockedS: 2 / 2.0, UpS: (4 + 2) / 2.0, DownS: 0,
				MemoryBytes: 2*60 + 4*80},
		}},
		// The curves are half as high as profiled, nothing is above 1, and computing takes twice as long as profiled.
		{"smaller micro-batches", Degrees{8, 1}, Printed, 9.375, []DevicePrediction{
			{ComputeS: 8, CommunicationS: 2, BlockedS: 0.25, UpS: 0, DownS: 1.125, MemoryBytes: 100 + 20},
			{ComputeS: 8, CommunicationS: 1, BlockedS: 0.125, UpS: 1.25, DownS: 0, MemoryBytes: 60 + 40},
		}},
		// With one micro-batch, nothing overlaps its communication: equation 3 with m' = 1 gives the communication time
		// C.
		{"one micro-batch", Degrees{1, 1}, Printed, 7.4, []DevicePrediction{
			{ComputeS: 2, CommunicationS: 2, BlockedS: 2, UpS: 0, DownS: 3.4, MemoryBytes: 100 + 160},
			{ComputeS: 2.4, CommunicationS: 1, BlockedS: 1, UpS: 4, DownS: 0, MemoryBytes: 60 + 320},
		}},
		// The curves are twice as high: 1 on device 0, and 0.8 and 1.6 on device 1. So a batch takes 2 s on device 0 and
		// 2.6 s on device 1. Two batches run like one batch of four micro-batches. Each device keeps one reference, and at
		// most two micro-batches.
		{"both degrees, one at a time", Degrees{2, 2}, Adjusted, 3.85, []DevicePrediction{
			{ComputeS: 2, CommunicationS: 2, BlockedS: 0.5, UpS: 0, DownS: (2 + 5.2) / 4 / 2, MemoryBytes: 200 + 20 + 107},
			{ComputeS: 2.6, CommunicationS: 1, BlockedS: 0.25, UpS: (4 + 4) / 4 / 2.0, DownS: 0, MemoryBytes: 120 + 10 + 320},
		}},
	} {
		o := two()
		got, err := o.Predict(c.to, c.form)
		if err != nil {
			t.Fatal(err)
		}
		if !near(got.StepS, c.step) {
			t.Errorf("%s: %v s a batch, want %v", c.name, got.StepS, c.step)
		}
		for k, d := range got.Devices {
			w := c.want[k]
			if !near(d.ComputeS, w.ComputeS) || !near(d.CommunicationS, w.CommunicationS) || !near(d.BlockedS, w.BlockedS) ||
				!near(d.UpS, w.UpS) || !near(d.DownS, w.DownS) || d.MemoryBytes != w.MemoryBytes {
				t.Errorf("%s: device %d is\n%+v, want\n%+v", c.name, k, d, w)
			}
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func drawCurve(t *rapid.T) Curve {
	var c Curve
	for range rapid.IntRange(1, 5).Draw(t, "stretches") {
		c = append(c, Level{rapid.Float64Range(0.01, 10).Draw(t, "for"), rapid.Float64Range(0, 1).Draw(t, "phi")})
	}
	return c
}

func drawDegrees(t *rapid.T, label string) Degrees {
	return Degrees{rapid.IntRange(1, 64).Draw(t, label+" M"), rapid.IntRange(1, 8).Draw(t, label+" N")}
}

// TestComputeTimeIsTheIntegral compares equation 2 with a sum over the curve in steps of a hundredth of a second.
func TestComputeTimeIsTheIntegral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, to := drawDegrees(t, "at"), drawDegrees(t, "to")
		var phi Curve
		var samples []float64
		for range rapid.IntRange(1, 5).Draw(t, "stretches") {
			n, level := rapid.IntRange(1, 50).Draw(t, "hundredths"), rapid.Float64Range(0, 1).Draw(t, "phi")
			phi = append(phi, Level{float64(n) / 100, level})
			for range n {
				samples = append(samples, level)
			}
		}
		m, n, m2, n2 := float64(at.MicroBatches), float64(at.Pipelines), float64(to.MicroBatches), float64(to.Pipelines)
		integral := 0.0
		for _, level := range samples {
			integral += 0.01 * math.Max(m*n2/(m2*n)*level-1, 0)
		}
		want := m2 * n / (m * n2) * (float64(len(samples))/100 + integral)
		if got := ComputeTime(phi, at, to); !near(got, want) {
			t.Fatalf("%v, the sampled integral gives %v", got, want)
		}
	})
}

// TestComputeTimeKeepsTheVolume: a batch is a fixed amount of computation (section 5.2.2). No setting takes less time
// for it than a device at its peak, and a device that is always full takes exactly that time. With more pipelines a
// batch never takes longer. With more micro-batches it never takes less.
func TestComputeTimeKeepsTheVolume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		phi, at, to := drawCurve(t), drawDegrees(t, "at"), drawDegrees(t, "to")
		took := ComputeTime(phi, at, to)
		if took < phi.Volume()*(1-1e-9) {
			t.Fatalf("%v s for %v s of computation at the peak", took, phi.Volume())
		}
		if same := ComputeTime(phi, at, at); !near(same, phi.Length()) {
			t.Fatalf("the profiled setting itself takes %v, not %v", same, phi.Length())
		}
		if more := ComputeTime(phi, at, Degrees{to.MicroBatches, to.Pipelines + 1}); more > took*(1+1e-9) {
			t.Fatalf("one more pipeline: %v after %v s for a batch", more, took)
		}
		if more := ComputeTime(phi, at, Degrees{to.MicroBatches + 1, to.Pipelines}); more < took*(1-1e-9) {
			t.Fatalf("one more micro-batch: %v after %v s for a batch", more, took)
		}
		full := Curve{{phi.Length(), 1}}
		if saturated := ComputeTime(full, Degrees{8, 1}, Degrees{4, 2}); !near(saturated, full.Volume()) {
			t.Fatalf("a full device takes %v for a volume of %v", saturated, full.Volume())
		}
	})
}

func drawObservation(t *rapid.T) Observation {
	o := Observation{At: drawDegrees(t, "at")}
	for range rapid.IntRange(1, 6).Draw(t, "devices") {
		reference := rapid.Int64Range(0, 1000).Draw(t, "reference")
		o.Devices = append(o.Devices, Observed{
			Utilisation: drawCurve(t), CommunicationS: rapid.Float64Range(0, 20).Draw(t, "communication"),
			ModelBytes:     reference*2 + rapid.Int64Range(0, 1000).Draw(t, "models"),
			DataBytes:      rapid.Int64Range(0, 1000).Draw(t, "data"),
			ReferenceBytes: reference, Held: rapid.IntRange(0, o.At.MicroBatches).Draw(t, "held"),
		})
	}
	return o
}

func TestPredictionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, to := drawObservation(t), drawDegrees(t, "to")
		for _, form := range []Form{Printed, Adjusted} {
			p, err := o.Predict(to, form)
			if err != nil {
				t.Fatal(err)
			}
			last, slowest := len(p.Devices)-1, 0.0
			for k, d := range p.Devices {
				slowest = max(slowest, d.TotalS())
				if d.BlockedS > d.CommunicationS*(1+1e-9) {
					t.Fatalf("%s: device %d is blocked for %v s by %v s of messages", form, k, d.BlockedS, d.CommunicationS)
				}
				if k > 0 && (d.UpS < p.Devices[k-1].UpS || d.DownS > p.Devices[k-1].DownS) {
					t.Fatalf("%s: device %d waits %v and %v, the one before it %v and %v", form, k, d.UpS, d.DownS,
						p.Devices[k-1].UpS, p.Devices[k-1].DownS)
				}
			}
			if p.Devices[0].UpS != 0 || p.Devices[last].DownS != 0 || slowest != p.StepS {
				t.Fatalf("%s: %+v", form, p)
			}
			fewer, err := o.Predict(Degrees{to.MicroBatches + 1, to.Pipelines}, Printed)
			if err != nil {
				t.Fatal(err)
			}
			more, err := o.Predict(Degrees{to.MicroBatches, to.Pipelines + 1}, form)
			if err != nil {
				t.Fatal(err)
			}
			printed, err := o.Predict(to, Printed)
			if err != nil {
				t.Fatal(err)
			}
			if fewer.MemoryBytes() > printed.MemoryBytes() || more.MemoryBytes() < p.MemoryBytes() {
				t.Fatalf("%s: memory %d; one more micro-batch %d, one more pipeline %d", form, p.MemoryBytes(),
					fewer.MemoryBytes(), more.MemoryBytes())
			}
		}
		same, err := o.Predict(o.At, Printed)
		if err != nil {
			t.Fatal(err)
		}
		for k, d := range o.Devices {
			if same.Devices[k].MemoryBytes != d.ModelBytes+d.DataBytes ||
				!near(same.Devices[k].ComputeS, d.Utilisation.Length()) {
				t.Fatalf("the profiled setting is predicted as %+v from %+v", same.Devices[k], d)
			}
		}
	})
}

// TestPredictIsAFAB: with one pipeline, full devices and no messages, both forms give AFAB's bubble. Each device waits
// for one micro-batch of every other device.
func TestPredictIsAFAB(t *testing.T) {
	const stages, each = 4, 3.0
	o := Observation{At: Degrees{16, 1}}
	for range stages {
		o.Devices = append(o.Devices, Observed{Utilisation: Curve{{each, 1}}})
	}
	for _, form := range []Form{Printed, Adjusted} {
		for _, m := range []int{1, 2, 4, 16} {
			p, err := o.Predict(Degrees{m, 1}, form)
			if err != nil {
				t.Fatal(err)
			}
			if want := each + (stages-1)*each/float64(m); !near(p.StepS, want) {
				t.Errorf("%s, %d micro-batches: %v, want %v", form, m, p.StepS, want)
			}
		}
	}
}

func TestPredictRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*Observation, *Degrees){
		"0 pipelines; both must be 1":  func(_ *Observation, to *Degrees) { *to = Degrees{4, 0} },
		"-1 micro-batches":             func(_ *Observation, to *Degrees) { *to = Degrees{-1, 1} },
		"in the profiled setting":      func(o *Observation, _ *Degrees) { o.At.Pipelines = 0 },
		"an observation of no devices": func(o *Observation, _ *Degrees) { o.Devices = nil },
		"device 1: stretch 0":          func(o *Observation, _ *Degrees) { o.Devices[1].Utilisation[0].Phi = 1.5 },
		"utilisation is 0 to 1":        func(o *Observation, _ *Degrees) { o.Devices[0].Utilisation[0].Phi = math.NaN() },
		"lasts +Inf s":                 func(o *Observation, _ *Degrees) { o.Devices[0].Utilisation[0].ForS = math.Inf(1) },
		"device 0 never computed":      func(o *Observation, _ *Degrees) { o.Devices[0].Utilisation = nil },
		"communicates for NaN s":       func(o *Observation, _ *Degrees) { o.Devices[1].CommunicationS = math.NaN() },
		"device 1 waits -1 s":          func(o *Observation, _ *Degrees) { o.Devices[1].FlushS = -1 },
		"device 0 has messages":        func(o *Observation, _ *Degrees) { o.Devices[0].InFlightS = math.NaN() },
		"holds -5 bytes":               func(o *Observation, _ *Degrees) { o.Devices[0].ModelBytes = -5 },
	} {
		o, to := two(), Degrees{1, 1}
		spoil(&o, &to)
		if _, err := o.Predict(to, Printed); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "tune: ") {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}
