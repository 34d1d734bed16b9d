package importer

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/profile"
)

// published lists the files with the format and the batch that their README gives.
var published = []struct {
	file, format       string
	batch, layers, all int // `all` is the number of antichain states; 0: unknown
}{
	{"pipedream-alexnet.txt", "pipedream", 256, 22, 22},
	{"pipedream-vgg16.txt", "pipedream", 128, 40, 40},
	{"pipedream-resnet50.txt", "pipedream", 128, 176, 240},
	{"pipedream-gnmt.txt", "pipedream", 32, 0, 99},
	{"pipedream-gnmt_large.txt", "pipedream", 128, 0, 1495},
	{"pipedream-inception_v3.txt", "pipedream", 128, 0, 221_564},
	{"dapple-vgg-19-pbs-32.txt", "dapple", 32, 25, 25},
	{"dapple-xlnet-36-pbs-1.txt", "dapple", 1, 0, 41},
	{"dapple-bert-48-pbs-2.txt", "dapple", 2, 0, 55},
	{"dapple-bert-24-pbs-6.txt", "dapple", 6, 0, 31},
	{"dapple-amoeba-36-pbs-1.txt", "dapple", 1, 0, 43},
	{"dapple-gnmt-16-pbs-64.txt", "dapple", 64, 0, 1495},
	{"hpgo-bert_large.txt", "dapple", 6, 0, 26},
	{"piper-bert32a100.json", "piper", 1, 37, 0},
}

func costsOf(t testing.TB, p *profile.Profile, batch int) []profile.Cost {
	t.Helper()
	costs, _, err := p.At("v100", batch)
	if err != nil {
		t.Fatal(err)
	}
	return costs
}

func TestPublishedProfilesHaveTheirStates(t *testing.T) {
	dir := filepath.Join(shared.Dir(t), "data", "profiles")
	for _, f := range published {
		t.Run(f.file, func(t *testing.T) {
			p, notes, err := Read(filepath.Join(dir, f.file), Options{Format: f.format, Batch: f.batch})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(len(p.Layers), "layers;", notes)
			if f.layers > 0 && len(p.Layers) != f.layers {
				t.Errorf("%d layers, want %d", len(p.Layers), f.layers)
			}
			s, err := profile.StatesOf(p, costsOf(t, p, f.batch))
			if err != nil {
				t.Fatal(err)
			}
			if f.all > 0 && len(s.List) != f.all {
				t.Errorf("%d antichain states, want %d", len(s.List), f.all)
			}
		})
	}
}

// TestStatesAreThoseOfTheOracles: the states, as sets with cumulative values, equal those that the published code
// enumerated.
func TestStatesAreThoseOfTheOracles(t *testing.T) {
	type enumerated struct {
		Profile string
		States  []struct {
			Antichain         []string
			CumComputeS       float64 `json:"cum_compute_s"`
			CumParams         float64 `json:"cum_params"`
			CumActivations    float64 `json:"cum_activations"`
			OutputActivation  float64 `json:"output_activation"`
			PredecessorStates int     `json:"num_predecessor_states"`
		}
	}
	for _, oracle := range shared.Oracles[enumerated](t, "states_*") {
		p, _, err := Read(filepath.Join(shared.Dir(t), "data", "profiles", oracle.Profile),
			Options{Format: "dapple", Batch: 4})
		if err != nil {
			t.Fatal(err)
		}
		s, err := profile.StatesOf(p, costsOf(t, p, 4))
		if err != nil {
			t.Fatal(err)
		}
		if len(s.List) != len(oracle.States) {
			t.Errorf("%s: %d states, want %d", oracle.Profile, len(s.List), len(oracle.States))
		}
		at := map[string]int{}
		for i, state := range s.List {
			var names []string
			for _, l := range state.Antichain {
				names = append(names, p.Layers[l].Name)
			}
			slices.Sort(names)
			at[fmt.Sprint(names)] = i
		}
		for _, want := range oracle.States {
			slices.Sort(want.Antichain)
			i, ok := at[fmt.Sprint(want.Antichain)]
			if !ok {
				t.Fatalf("%s: no state %v", oracle.Profile, want.Antichain)
			}
			got, before := s.List[i], 0
			for j := range s.List {
				if s.Before(j, i) {
					before++
				}
			}
			if math.Abs(got.ComputeS-want.CumComputeS) > 1e-12*want.CumComputeS ||
				float64(got.ParameterBytes) != want.CumParams ||
				float64(got.ActivationBytes) != want.CumActivations ||
				float64(got.OutputBytes) != want.OutputActivation || before != want.PredecessorStates {
				t.Fatalf("%s: state %v is %+v with %d before it, want %+v", oracle.Profile, want.Antichain, got, before,
					want)
			}
		}
	}
}

func TestInceptionIsCompressed(t *testing.T) {
	p, _, err := Read(filepath.Join(shared.Dir(t), "data", "profiles", "pipedream-inception_v3.txt"),
		Options{Format: "pipedream", Batch: 128})
	if err != nil {
		t.Fatal(err)
	}
	s, err := profile.CompressedStates(p, costsOf(t, p, 128))
	if err != nil {
		t.Fatal(err)
	}
	last := s.List[len(s.List)-1]
	t.Logf("%d states, slack %.4g ms of %.4g ms, %d of %d parameter bytes", len(s.List), 1e3*s.SlackS,
		1e3*last.ComputeS, s.SlackParameterBytes, last.ParameterBytes)
	if len(s.List) > profile.FewStates {
		t.Errorf("%d states are kept, more than %d", len(s.List), profile.FewStates)
	}
	if len(s.Layers(len(s.List)-1)) != len(p.Layers) {
		t.Error("the last state is not the whole model")
	}
}

func BenchmarkStates(b *testing.B) {
	for name, list := range map[string]func(*profile.Profile, []profile.Cost) (*profile.States,
		error){"all": profile.StatesOf, "compressed": profile.CompressedStates} {
		for _, model := range []string{"resnet50", "gnmt_large", "inception_v3"} {
			b.Run(model+"/"+name, func(b *testing.B) {
				p, _, err := Read(filepath.Join(shared.Dir(b), "data", "profiles", "pipedream-"+model+".txt"),
					Options{Format: "pipedream", Batch: 128})
				if err != nil {
					b.Fatal(err)
				}
				costs := costsOf(b, p, 128)
				for b.Loop() {
					s, err := list(p, costs)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(len(s.List)), "states")
				}
			})
		}
	}
}

// small is a graph with an input, a branch, an element of a tuple that nothing reads, and a description with commas.
const small = `node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=64.0, parameter_size=12.000
node1 -- Input0 -- forward_compute_time=500.000, backward_compute_time=0.000, activation_size=32.0, parameter_size=0.000
node9 -- Add -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=[8; 8; 16], parameter_size=0.000 -- stage_id=1
node3 -- LSTM(4, 4) -- forward_compute_time=3.000, backward_compute_time=4.000, activation_size=16, parameter_size=5
node4 -- __getitem__(1) -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=0.0, parameter_size=0.000
	node1 -- node2
	node2 -- node9
	node2 -- node3
	node3 -- node9
	node3 -- node4
`

func TestSmallGraph(t *testing.T) {
	p, notes, err := Decode("m/graph.txt", []byte(small), Options{Format: "pipedream", Batch: 8})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Layers) != 3 || len(notes) != 2 || p.Model != "graph" || p.Source != profile.SourceImported {
		t.Fatalf("%d layers, notes %q", len(p.Layers), notes)
	}
	conv, lstm, add := p.Layers[0], p.Layers[1], p.Layers[2]
	if conv.Kind != "Conv2d(3, 64, kernel_size=(3, 3))" || !slices.Equal(conv.From, []int{-1}) ||
		conv.Feeds[0].BytesPerSample != 4 || conv.Costs[0].BackwardS != 0.002 || conv.ParameterBytes != 12 {
		t.Errorf("conv: %+v", conv)
	}
	if lstm.Name != "node3" || !slices.Equal(add.From, []int{0, 1}) || add.Costs[0].OutputBytes != 32 {
		t.Errorf("lstm: %+v\nadd: %+v", lstm, add)
	}
	for _, c := range []struct {
		batch           int
		forwardS        float64
		bytes           int64
		interpolated    bool
		wordsOfTheBasis string
	}{{8, 1e-3, 64, false, ""}, {2, 0.25e-3, 16, true, "2 samples are those for 8"},
		{32, 4e-3, 256, true, "in proportion"}} {
		costs, made, err := p.At("any GPU", c.batch)
		if err != nil || costs[0].ForwardS != c.forwardS || costs[0].OutputBytes != c.bytes || made != c.interpolated ||
			costs[0].MicroBatch != c.batch {
			t.Errorf("batch %d: %+v, %v, %v", c.batch, costs, made, err)
		}
		if basis := p.Basis("any GPU", c.batch); !strings.Contains(basis, c.wordsOfTheBasis) ||
			(basis == "") != (c.wordsOfTheBasis == "") {
			t.Errorf("batch %d rests on %q", c.batch, basis)
		}
	}
	if _, _, err := p.At("v100", 0); err == nil || !strings.Contains(err.Error(), "1 at least") {
		t.Errorf("micro-batches of 0: %v", err)
	}
	p, _, err = Decode("m/graph.txt", []byte(small), Options{Format: "pipedream", Batch: 8, Device: "v100"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.At("a100", 8); err == nil || !strings.Contains(err.Error(), "it has them on v100") {
		t.Errorf("another device: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	n := func(id, costs string) string { return id + " -- X -- " + costs + "\n" }
	zero := "forward_compute_time=0, backward_compute_time=0, activation_size=0, parameter_size=0"
	ab := n("a", zero) + n("b", zero)
	for _, c := range []struct{ format, text, want string }{
		{"pipedream", "", "f.txt:1: there are no nodes"},
		{"dapple", "\n\n", "f.txt:1: there are no nodes"},
		{"pipedream", "hello\n", "f.txt:1: 1 fields"},
		{"pipedream", ab + n("a", zero), "f.txt:3: node a is there already, in line 1"},
		{"pipedream", ab + "\ta -- c\n", `f.txt:3: edge to "c", which is no node`},
		{"pipedream", ab + "\tc -- a\n", `f.txt:3: edge from "c", which is no node`},
		{"pipedream", ab + "\ta\n", `f.txt:3: edge "a"`},
		{"pipedream", ab + " a -- b\n", "f.txt:3: begins with a space"},
		{"pipedream", ab + "\n\ta -- b\n", "f.txt:3: a blank line"},
		{"pipedream", ab + "\ta -- b\n\tb -- a\n", "f.txt: the graph has a cycle: b -> a -> b"},
		{"pipedream", ab + "\ta -- a\n", "f.txt:3: the graph has a cycle: a -> a"},
		{"pipedream", n("a", strings.Replace(zero, "forward_compute_time=0", "forward_compute_time=NaN", 1)),
			"f.txt:1: node a: forward_compute_time is NaN"},
		{"pipedream", n("a", strings.Replace(zero, "backward_compute_time=0", "backward_compute_time=-1", 1)),
			"f.txt:1: node a: backward_compute_time is -1"},
		{"pipedream", n("a", strings.Replace(zero, "activation_size=0", "activation_size=[1; x]", 1)),
			"f.txt:1: node a: activation_size is [1; x]"},
		{"pipedream", n("a", strings.Replace(zero, "parameter_size=0", "parameter_size=1e300", 1)), "f.txt:1: node " +
			"a: parameter_size is 1e300"},
		{"pipedream", n("a", "forward_compute_time=0"), "f.txt:1: node a: backward_compute_time is missing"},
		{"pipedream", n("a", zero+", gpu=1"), `f.txt:1: node a: unknown cost "gpu"`},
		{"pipedream", "a -- Input -- " + zero + "\n", "there are no nodes but inputs"},
		{"torch", ab, "there are pipedream, dapple, piper"},
		{"piper", "{", "f.txt:1: not Piper's JSON"},
		{"piper", "{}", "f.txt:1: there are no nodes"},
		{"piper", "{\n\"nodes\": [{\"id\": \"a\"}]}", "f.txt:2: not Piper's JSON"},
		{"piper", `{"nodes": [{"id": 1, "name": "x"}]}`, `node 1 (x): no TMPCs["1"]`},
		{"piper", `{"nodes": [{"id": 1, "name": "x", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": -1}]}}]}`, "node 1 (x): timePerSample is missing or negative"},
		{"piper", `{"nodes": [{"id": 1, "name": "x", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 1}]}}], "edges": [{"sourceId": 1, "destId": 2}]}`, "edges[0] is from 1 to 2"},
	} {
		if _, _, err := Decode("f.txt", []byte(c.text), Options{Format: c.format, Batch: 1}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.format, c.text, err, c.want)
		}
	}
	if _, _, err := Decode("f.txt", []byte(ab), Options{Format: "dapple"}); err == nil ||
		!strings.Contains(err.Error(), "a batch of 0 samples") {
		t.Errorf("no batch: %v", err)
	}
	if _, _, err := Decode("f.txt", []byte(ab), Options{Format: "dapple", Batch: 1, TimeUnit: "s"}); err == nil {
		t.Error("a unit for times that have one is taken")
	}
}

// fuzz imports any text. The result must be a profile that can be written, or an error that names the file.
func fuzz(f *testing.F, format string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, _, err := Decode("f.txt", text, Options{Format: format, Batch: 3})
		if err != nil {
			if !strings.Contains(err.Error(), "f.txt") {
				t.Errorf("error without the file: %v", err)
			}
			return
		}
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		if _, _, err := p.At("gpu", 7); err != nil {
			t.Error(err)
		}
	})
}

func FuzzPipeDream(f *testing.F) { fuzz(f, "pipedream", small, "a -- b -- c", "\ta -- b\n") }
func FuzzDapple(f *testing.F) {
	fuzz(f, "dapple", small, "\n"+strings.ReplaceAll(small, "\t", " \t"))
}
func FuzzPiper(f *testing.F) {
	fuzz(f, "piper", `{"nodes": [{"id": 1, "name": "x", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 1, "parameterSize": 4}]}}], "edges": []}`)
}
