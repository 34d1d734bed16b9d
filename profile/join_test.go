package profile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/profile"
)

// filledOn returns a profile on a device type whose costs, update times and transfers are drawn at random.
func filledOn(g *rand.Rand, device string) *profile.Profile {
	p := twoLayers()
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Float64:
			v.SetFloat(0.001 + g.Float64())
		case reflect.Int64:
			v.SetInt(1 + g.Int64N(1000))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					fill(v.Field(i))
				}
			}
		}
	}
	for l := range p.Layers {
		fill(reflect.ValueOf(&p.Layers[l].UpdateTimes).Elem())
		for k := range p.Layers[l].Costs {
			c := &p.Layers[l].Costs[k]
			fill(reflect.ValueOf(c).Elem())
			c.Device, c.MicroBatch = device, 1+3*k
		}
	}
	p.Concurrency, p.PaceSpread = 1+g.IntN(8), g.Float64()
	fill(reflect.ValueOf(&p.Transfer).Elem())
	p.Transfer.AllReduceWorkers = 2
	return p
}

func part(name string, p *profile.Profile) profile.Part { return profile.Part{Name: name, Profile: p} }

func joined(t *testing.T, parts ...*profile.Profile) *profile.Profile {
	t.Helper()
	var named []profile.Part
	for i, p := range parts {
		named = append(named, part(fmt.Sprint(i), p))
	}
	out, err := profile.Join(named...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestJoinLosesNothing: for each device type, a joined profile has the same values as the part of that type, even after
// it is written and read. Its text has every number of each part.
func TestJoinLosesNothing(t *testing.T) {
	for seed := range uint64(20) {
		g := rand.New(rand.NewPCG(seed, 1))
		a, b := filledOn(g, "fast"), filledOn(g, "slow")
		whole := joined(t, a, b)
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		read, err := profile.Decode(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for device, p := range map[string]*profile.Profile{"fast": a, "slow": b} {
			if got, want := read.On(device), p.On(device); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", device, got, want)
			}
			for l := range p.Layers {
				if got, want := read.Layers[l].UpdatesOn(device), p.Layers[l].UpdatesOn(device); got != want {
					t.Errorf("%s: updates %+v, want %+v", device, got, want)
				}
			}
			for _, size := range []int{1, 2, 4} {
				got, _, err := read.At(device, size)
				want, _, _ := p.At(device, size)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s at %d: %v %v, want %v", device, size, got, err, want)
				}
			}
			var fields map[string]any
			own, _ := json.Marshal(p)
			if err := json.Unmarshal(own, &fields); err != nil {
				t.Fatal(err)
			}
			for leaf := range leaves(fields) {
				if !bytes.Contains(text, []byte(leaf)) {
					t.Errorf("seed %d: %s of %s is lost", seed, leaf, device)
				}
			}
		}
	}
}

// leaves returns the numbers and words of a JSON value.
func leaves(v any) map[string]bool {
	out := map[string]bool{}
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			maps.Copy(out, leaves(inner))
		}
	case []any:
		for _, inner := range v {
			maps.Copy(out, leaves(inner))
		}
	case nil:
	default:
		text, _ := json.Marshal(v)
		out[string(text)] = true
	}
	return out
}

// TestJoinKeepsPrecisionAndSlices joins two 16-bit profiles, one of which has a slice size. An f32 profile is refused.
func TestJoinKeepsPrecisionAndSlices(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	a, b := filledOn(g, "fast"), filledOn(g, "slow")
	a.Precision, b.Precision = "bf16", "bf16"
	a.Slices, b.Slices = []int{4}, nil
	whole := joined(t, b, a)
	if whole.Precision != "bf16" || !slices.Equal(whole.Slices, []int{4}) || !slices.Equal(whole.Sizes("slow"), []int{1}) {
		t.Errorf("%q, slices %v, sizes %v", whole.Precision, whole.Slices, whole.Sizes("slow"))
	}
	a.Precision, b.Precision = "f32", ""
	if one, other := joined(t, a, b), joined(t, b, a); one.Precision != other.Precision {
		t.Errorf("precision %q and %q", one.Precision, other.Precision)
	}
	a.Precision = "bf16"
	_, err := profile.Join(part("a.json", a), part("b.json", b))
	if want := "the precision of b.json is f32; of a.json it is bf16"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestJoinInAnyOrder: the order of joins does not change the result. Joining a part a second time changes nothing.
func TestJoinInAnyOrder(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	a, b, c := filledOn(g, "x"), filledOn(g, "y"), filledOn(g, "z")
	want := joined(t, a, b, c)
	for i, got := range []*profile.Profile{joined(t, c, a, b), joined(t, joined(t, a, b), c),
		joined(t, a, joined(t, c, b)), joined(t, want, b), joined(t, want)} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
	if !slices.Equal(want.DeviceTypes(), []string{"x", "y", "z"}) || want.Source != "measured" {
		t.Errorf("%v, %s", want.DeviceTypes(), want.Source)
	}
}

func TestJoinRefuses(t *testing.T) {
	for want, change := range map[string]func(a, b *profile.Profile){
		"the model of b.json is cnn (0123); of a.json it is mlp": func(_, b *profile.Profile) { b.Model = "cnn" },
		"the model of b.json is mlp (9)":                         func(_, b *profile.Profile) { b.ModelID = "9" },
		"the optimizer of b.json is sgd; of a.json it is adam":   func(_, b *profile.Profile) { b.Optimizer = "sgd" },
		"optimizer_states of b.json is 0":                        func(_, b *profile.Profile) { b.OptimizerStates = 0 },
		"threads_per_worker of b.json is 2; of a.json it is 1":   func(_, b *profile.Profile) { b.ThreadsPerWorker = 2 },
		"the number of layers of b.json is 1; of a.json it is 2": func(_, b *profile.Profile) {
			b.Layers = b.Layers[:1]
		},
		"layer 1 (b): tied_to of b.json is -1; of a.json it is 0": func(_, b *profile.Profile) { b.Layers[1].TiedTo = -1 },
		"layer 1 (b): tied_bytes of b.json is 4":                  func(_, b *profile.Profile) { b.Layers[1].TiedBytes = 4 },
		"layer 1 (b): from of b.json is [-1]; of a.json it is [0]": func(_, b *profile.Profile) {
			b.Layers[1].From = []int{-1}
		},
		"layer 0 (a): parameter_bytes of b.json is 7": func(_, b *profile.Profile) { b.Layers[0].ParameterBytes = 7 },
		"b.json has costs on any device": func(_, b *profile.Profile) {
			for l := range b.Layers {
				for k := range b.Layers[l].Costs {
					b.Layers[l].Costs[k].Device = profile.AnyDevice
				}
			}
		},
		"both measured device type slow, and differ in what they say of the machine": func(a, b *profile.Profile) {
			*a = *filledOn(rand.New(rand.NewPCG(8, 8)), "slow")
		},
		"differ in layer 1 (b)": func(a, b *profile.Profile) {
			*a = *filledOn(rand.New(rand.NewPCG(7, 2)), "slow")
			a.Layers[1].Costs[0].ForwardS *= 2
		},
		"no micro-batch size is there of every device type: [1 4] on fast, [8 16] on slow": func(_, b *profile.Profile) {
			for l := range b.Layers {
				b.Layers[l].Costs[0].MicroBatch, b.Layers[l].Costs[1].MicroBatch = 8, 16
			}
		},
		"b.json: profile: mlp: concurrency is -1": func(_, b *profile.Profile) { b.Concurrency = -1 },
	} {
		a, b := filledOn(rand.New(rand.NewPCG(7, 1)), "fast"), filledOn(rand.New(rand.NewPCG(7, 2)), "slow")
		change(a, b)
		if _, err := profile.Join(part("a.json", a), part("b.json", b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
	if _, err := profile.Join(); err == nil {
		t.Error("nothing was joined")
	}
}

// TestJoinedProfilesAreRefused: joined profiles are refused if machines, costs and updates do not match.
func TestJoinedProfilesAreRefused(t *testing.T) {
	for want, change := range map[string]func(p *profile.Profile){
		"machines: device is \"other\"":       func(p *profile.Profile) { p.Machines[0].Device = "other" },
		"machines: device is \"fast\", twice": func(p *profile.Profile) { p.Machines[1].Device = "fast" },
		"machines is of 1 device types":       func(p *profile.Profile) { p.Machines = p.Machines[:1] },
		"machines: fast: pace_spread is -1":   func(p *profile.Profile) { p.Machines[0].PaceSpread = -1 },
		"machines: slow: transfer: bandwidth_bytes_per": func(p *profile.Profile) {
			p.Machines[1].Transfer = &profile.Transfer{}
		},
		"engine, concurrency, spreads and transfer": func(p *profile.Profile) { p.Engine = "torch" },
		"update_s is 1; it must be left out":        func(p *profile.Profile) { p.Layers[0].UpdateS = 1 },
		"updates: device is \"fast\"":               func(p *profile.Profile) { p.Layers[0].Updates[1].Device = "fast" },
		"updates: device is \"none\"":               func(p *profile.Profile) { p.Layers[0].Updates[1].Device = "none" },
		"updates: slow: update_s is -1":             func(p *profile.Profile) { p.Layers[0].Updates[1].UpdateS = -1 },
	} {
		p := joined(t, filledOn(rand.New(rand.NewPCG(7, 1)), "fast"), filledOn(rand.New(rand.NewPCG(7, 2)), "slow"))
		change(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
}

func TestRenamed(t *testing.T) {
	p := filledOn(rand.New(rand.NewPCG(3, 3)), "cpu")
	q, err := p.Renamed("fast")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(q.DeviceTypes(), []string{"fast"}) || !slices.Equal(p.DeviceTypes(), []string{"cpu"}) {
		t.Errorf("%v of %v", q.DeviceTypes(), p.DeviceTypes())
	}
	alone := joined(t, q)
	if again, err := alone.Renamed("cpu"); err != nil || !reflect.DeepEqual(again, joined(t, p)) {
		t.Errorf("%+v (%v), want %+v", again, err, joined(t, p))
	}
	if _, err := joined(t, p, q).Renamed("one"); err == nil || !strings.Contains(err.Error(), "has costs on cpu, fast") {
		t.Errorf("got %v", err)
	}
}
