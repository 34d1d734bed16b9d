package reproduce

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
)

// On the published profiles, PipeDream's statements hold by its own numbers: 15-1 is best for
// VGG-16, GNMT's pipelines communicate far less than data parallelism, ResNet-50's more.
func TestPublishedProfiles(t *testing.T) {
	o := Options{Profiles: shared.Dir(t) + "/data/profiles"}
	for _, name := range []string{"pipedream-fig15", "pipedream-fig17"} {
		table := tableOf(t, name, o)
		if name == "pipedream-fig15" {
			if r := find(t, table, "best configuration"); r.Ours != "15-1" {
				t.Errorf("VGG-16 on 16 workers: %s", r.Ours)
			}
			continue
		}
		for model, want := range map[string]string{"gnmt-8": "87 % less", "gnmt-16": "96 % less"} {
			if r := find(t, table, model+", pipeline against data parallelism"); r.Ours != want {
				t.Errorf("%s: %s, want %s", model, r.Ours, want)
			}
		}
	}
	// With the published planner: all plans of DAPPLE's Table 6, and all shapes of Table 4.
	for _, name := range []string{"dapple-table6", "dapple-table4"} {
		for _, r := range tableOf(t, name, o).Rows {
			if r.Difference != "same" && !strings.Contains(r.What, "by pipedream") {
				t.Errorf("%s: %s: paper %s, ours %s", name, r.What, r.Paper, r.Ours)
			}
		}
	}
	for name, profiles := range artifacts {
		for workload := range profiles {
			if p, err := published(o.Profiles, name+"-a", workload); err != nil || p == nil {
				t.Errorf("%s of %s: %v", workload, name, err)
			}
		}
	}
}
