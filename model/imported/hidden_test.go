package imported_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/stage"
)

// waits runs a second micro-batch forward before the backward of the first. This must not change any bits, also with
// recompute.
func waits(t *testing.T, dev engine.Device, m *model.Model, want map[string]torchtest.Tensor) {
	t.Helper()
	var first map[string][]byte
	for i, segment := range []int{0, 0, 1} {
		l := newLine(t, dev, m, segment)
		l.forward(0, want, "a")
		if i == 0 {
			l.back(0, (*stage.Stage).Backward)
			l.forward(1, want, "b")
		} else {
			l.forward(1, want, "b")
			l.back(0, (*stage.Stage).Backward)
		}
		l.back(1, (*stage.Stage).Backward)
		found := l.found()
		l.close()
		if i == 0 {
			first = found
		}
		for name, x := range first {
			if !bytes.Equal(x, found[name]) {
				t.Errorf("%s has other bits where two micro-batches are under way, and segments have %d layers", name, segment)
			}
		}
	}
}

// If a trace cannot show what a network does, the network is refused or a warning is printed. Networks that are
// accepted give PyTorch's results at every cut.
func TestWhatATraceDoesNotShow(t *testing.T) {
	const other = "in evaluation forward computes something else"
	cases := map[string]struct {
		code int
		says string
	}{
		"state":  {2, "holds other elements in the next forward"},
		"data":   {2, "forward replaces m; write into it"},
		"number": {2, "with twice the rows"},
		"hook":   {2, "a hook changes gradients"}, "inner": {2, "a hook changes gradients"},
		"always": {0, other}, "auxiliary": {0, other}, "averages": {0, ""}, "recomputed": {0, ""},
		"inplace": {2, "mul_.Tensor changes under no_grad what has a gradient; write x = x + (y - x).detach()"},
		"part":    {2, "fill_.Tensor changes under no_grad"},
		"clipped": {2, "clamp_ changes under no_grad the parameter a.weight"},
		"view":    {0, ""}, "switched": {0, ""}, "spectral": {0, ""},
		"batch": {0, ""}, "scaled": {0, ""}, "counts": {0, ""}, "statistics": {0, ""},
		"returns":      {0, "in evaluation forward does not return its loss"},
		"normed":       {2, "b has spectral_norm, whose power iteration writes its buffers"},
		"parametrized": {2, "b.parametrizations.weight.0 has spectral_norm"},
		"cumulative":   {2, "b.1 has momentum=None: Python counts the batches"},
	}
	var requests []torchtest.Request
	for name := range cases {
		requests = append(requests, torchtest.Request{Name: name, File: "hidden.py"})
	}
	for _, a := range torchtest.Run(t, requests...) {
		t.Run(a.Name, func(t *testing.T) {
			c := cases[a.Name]
			if a.Code != c.code || !strings.Contains(a.Said, c.says) || c.says == "" && a.Said != "" {
				t.Fatalf("exit code %d, %q; want %d, %q", a.Code, a.Said, c.code, c.says)
			}
			if a.Code != 0 || !a.Oracle {
				return
			}
			m, want, dev := opened(t, a.Model, imported.Off).Model, torchtest.Read(t, a.Numbers), device(t)
			compare(t, dev, m, want, "b", 1e-6, 0)
			if c.says == "" {
				evaluates(t, dev, m, want, 1e-6)
			}
			loss, found := compare(t, dev, m, want, "a", 1e-6, 0)
			for cut := 1; cut < len(m.Layers); cut++ {
				equalBits(t, "cut in front of "+m.Layers[cut].Name, dev, m, want, loss, found, 0, cut)
			}
			if a.Name != "spectral" { // singular values have other bits if no gradient is wanted
				equalBits(t, "recomputed", dev, m, want, loss, found, 1)
				waits(t, dev, m, want)
			}
		})
	}
}
