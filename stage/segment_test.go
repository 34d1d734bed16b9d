package stage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// deep has six layers with 4 outputs for each row, then the classes and the loss.
func deep(t *testing.T) *model.Model {
	t.Helper()
	var b strings.Builder
	b.WriteString("name: deep\ninputs:\n- {name: input, shape: [3], dtype: float}\n- {name: target, shape: [], dtype: " +
		"int}\nlayers:\n")
	for i := range 6 {
		fmt.Fprintf(&b, "- {name: l%d, kind: dense, width: 4}\n", i)
	}
	b.WriteString("- {name: head, kind: dense, width: 3}\n- {name: loss, kind: cross_entropy, from: [head, target]}\n")
	m, err := model.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestWhatSegmentsHold checks what is kept between forward and backward of 10 rows. The input (240 bytes) and the
// targets (80) are always kept. With recompute, one tensor is also kept for each segment except the first: 320 bytes,
// or 240 for a segment that reads the classes. Without recompute, every layer's output is also kept, and so are the
// probabilities of the softmax and the loss. The peak of the backward is lower with segments of 3 layers than with
// segments of 1 or 8 layers, or without recompute.
func TestWhatSegmentsHold(t *testing.T) {
	e := doubles(t)
	const in, out, head = 240 + 80, 320, 240
	peaks := map[int]int64{}
	for segment, want := range map[int]int64{
		0: in + 6*out + 2*head + 8, 1: in + 6*out + head, 2: in + 3*out, 3: in + 2*out, 4: in + out, 7: in + head, 8: in,
		100: in,
	} {
		m := deep(t)
		g, err := NewGraph(m)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := nn.Build(m)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := e.Open(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Device: dev, Float: e.Float(), Graph: g, Last: len(layers) - 1, Layers: layers, Seed: 5,
			Segment: segment})
		if err != nil {
			t.Fatal(err)
		}
		b := &lab{t: t, engine: e, dev: dev, stages: []*Stage{s}}
		b.forward(7, 10, 1)
		b.backward(7, 1) // so that the gradients exist before the bytes are counted
		before := dev.Memory().LiveBytes
		b.forward(8, 10, 1)
		if got := dev.Memory().LiveBytes - before; got != want {
			t.Errorf("segments of %d: %d bytes held, want %d", segment, got, want)
		}
		dev.ResetPeak()
		b.backward(8, 1)
		peaks[segment] = dev.Memory().PeakBytes - before
		if after := dev.Memory().LiveBytes; after != before {
			t.Errorf("segments of %d: %d bytes before the micro-batch and %d after it", segment, before, after)
		}
		b.close()
	}
	if !(peaks[3] < peaks[1] && peaks[3] < peaks[8] && peaks[3] < peaks[0]) {
		t.Errorf("backward's peaks %v: segments of 3 must hold less than of 1, of 8 and than none", peaks)
	}
}
