package reproduce

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
	"github.com/millrace-ml/millrace/plan"
)

func TestTablesRun(t *testing.T) {
	for _, name := range []string{"bapipe-table3", "bapipe-table6", "dapple-fig12", "pipedream-fig1",
		"pipedream-fig16"} {
		tabletest.Run(t, name)
	}
}

func TestAnUnknownExperimentIsRefused(t *testing.T) {
	if _, err := table.Lookup("table9"); err == nil || !strings.Contains(err.Error(), "bapipe-table1") {
		t.Errorf("got %v", err)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e, err := table.Lookup("pipedream-fig1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Run(ctx, table.Options{}); err == nil {
		t.Error("it ran to its end")
	}
}

// Every experiment must end with an error for each of these options: a folder without profiles, an unknown formula or
// setting, and a wrong value of a setting. If the experiment uses the option, the error is about its value; if not, the
// option is refused.
func TestOptionsAreUsedOrRefused(t *testing.T) {
	empty := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	stop() // options are refused before anything is computed
	for _, e := range table.Experiments() {
		for what, o := range map[string]table.Options{
			"a folder that is not there": {Profiles: filepath.Join(empty, "none")},
			"another formula":            {Formula: "nonsense"},
			"a setting of nobody's":      {Set: map[string]string{"nonsense": "1"}},
		} {
			if _, err := e.Run(ctx, o); err == nil || !strings.Contains(err.Error(), "--") {
				t.Errorf("%s takes %s: %v", e.Name, what, err)
			}
		}
		if _, err := e.Run(t.Context(), table.Options{Profiles: empty}); err == nil {
			t.Errorf("%s does without the profiles that it was to read", e.Name)
		}
		settings := []plan.Setting{{Name: "nvlink"}, {Name: "gpu_memory"}}
		for _, planner := range plan.Planners() {
			settings = append(settings, planner.Settings...)
		}
		for _, s := range settings {
			bad := table.Options{Set: map[string]string{s.Name: "-1x"}}
			if _, err := e.Run(t.Context(), bad); err == nil || !strings.Contains(err.Error(), s.Name) {
				t.Errorf("%s takes %s=-1x: %v", e.Name, s.Name, err)
			}
		}
		bad := table.Options{Formula: "paper", Set: map[string]string{"nvlink": "1e9"}}
		if _, err := e.Run(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%s takes what the published script is told, by formula paper: %v", e.Name, err)
		}
	}
}
