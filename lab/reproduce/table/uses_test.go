package table

import (
	"maps"
	"testing"
)

// A planner gets only the settings that it knows.
func TestSettingsGoToThePlannerThatHasThem(t *testing.T) {
	o := Options{Formula: "paper", Set: map[string]string{"policy": "pa", "volume": "prose"}}
	for planner, want := range map[string]map[string]string{
		"dapple": {"policy": "pa"}, "pipedream": {"volume": "prose"}, "bapipe": {},
	} {
		if r := o.Request(planner, nil, nil, 1); !maps.Equal(r.Set, want) || r.Formula != "paper" {
			t.Errorf("%s is told %v; want %v", planner, r.Set, want)
		}
	}
}
