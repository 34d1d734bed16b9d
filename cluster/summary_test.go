package cluster

import "testing"

func TestSummary(t *testing.T) {
	for name, want := range map[string]string{
		"dapple-a":           "16 x v100, 16.0 GiB each: rack of 2, server of 8",
		"dapple-a:4x8":       "32 x v100, 16.0 GiB each: rack of 4, server of 8",
		"workshop-3090-4090": "4 x rtx3090, 24.0 GiB each; 4 x rtx4090, 24.0 GiB each: room of 4, machine of 2",
	} {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Summary(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
