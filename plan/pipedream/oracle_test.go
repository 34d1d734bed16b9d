package pipedream_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// published holds a run of PipeDream's optimizer on one of its own profiles.
type published struct {
	Profile  string
	Topology struct {
		Levels []struct {
			Workers   int
			Bandwidth float64 `json:"bandwidth_bytes_per_s"`
		}
	}
	Batch struct {
		Minibatch int `json:"profile_minibatch"`
	}
	Flags  []string
	Result struct {
		Objective    float64
		Alternatives *[]any
		Stages       []struct {
			Replicas int
			Layers   []string
		}
	}
}

// levels returns a cluster with these levels, innermost first. Its devices have the given types in turn, or all have
// type "gpu".
func levels(sizes []int, bandwidths []float64, types ...string) *cluster.Cluster {
	c := &cluster.Cluster{Name: "test", DeviceTypes: map[string]cluster.DeviceType{"gpu": {}}}
	n := 1
	for i, size := range sizes {
		n *= size
		c.Levels = append(c.Levels, cluster.Level{Name: "level", Size: size, BandwidthBytesPerSecond: bandwidths[i],
			FullDuplex: true})
	}
	for d := range n {
		t := "gpu"
		if len(types) > 0 {
			t = types[d%len(types)]
		}
		c.Devices = append(c.Devices, t)
		c.DeviceTypes[t] = cluster.DeviceType{}
	}
	return c
}

// TestAnswersAsPublished compares the planner with every published run, including those that use max in place of sum.
func TestAnswersAsPublished(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	runs := shared.Oracles[published](t, "pipedream_*")
	maps.Copy(runs, shared.Oracles[published](t, "derived_max_pipedream_*"))
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			set := map[string]string{"activation_compression_ratio": "none"}
			for i, f := range run.Flags {
				switch f {
				case "--activation_compression_ratio":
					set["activation_compression_ratio"] = run.Flags[i+1]
				case "--use_memory_constraint":
					set["memory"] = "16e9"
				case "--use_fewer_machines":
					set["use_fewer_machines"] = "on"
				}
			}
			if strings.HasPrefix(name, "derived_max") {
				set["overlap"] = "max"
			}
			var sizes []int
			var bandwidths []float64
			for _, l := range run.Topology.Levels {
				sizes, bandwidths = append(sizes, l.Workers), append(bandwidths, l.Bandwidth)
			}
			p := plantest.ReadProfile(t, run.Profile, run.Batch.Minibatch)
			pl, err := planner.Plan(t.Context(), plan.Request{Profile: p, Cluster: levels(sizes, bandwidths),
				Batch: run.Batch.Minibatch, Formula: "artifact", Set: set})
			if err != nil {
				t.Fatal(err)
			}
			if want := run.Result.Objective; math.Abs(pl.Objective.Value-want) > 1e-9*want {
				t.Errorf("objective %.12g, published %.12g", pl.Objective.Value, want)
			}
			if run.Result.Alternatives == nil || len(*run.Result.Alternatives) > 0 {
				return // the original may have chosen at random among equal plans
			}
			ordered, err := p.Ordered(pl.Order)
			if err != nil {
				t.Fatal(err)
			}
			if len(pl.Stages) != len(run.Result.Stages) {
				t.Fatalf("%d stages, published %d", len(pl.Stages), len(run.Result.Stages))
			}
			for i, st := range pl.Stages {
				want := run.Result.Stages[i]
				if len(st.Devices) != want.Replicas {
					t.Errorf("stage %d has %d replicas, published %d", i, len(st.Devices), want.Replicas)
				}
				var have []string
				for _, l := range ordered.Layers[st.FirstLayer : st.LastLayer+1] {
					have = append(have, l.Name)
				}
				for _, layer := range want.Layers {
					// node1 is the input, which the original adds to a stage
					if !slices.Contains(have, layer) && layer != "node1" {
						t.Errorf("stage %d lacks %s; it has %v", i, layer, have)
					}
				}
			}
		})
	}
}
