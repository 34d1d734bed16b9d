package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The functions here whose names begin with Read parse the stages of other runtimes. Each returns the first layers of
// stages 1, 2, ..., as --split and FromCuts take them. `layers` has the name of each layer of the model.

// maxLayoutStages limits the length of a layout after its repetitions are replaced by copies. The limit is
// maxLayoutStages plus twice the number of the model's symbols.
const maxLayoutStages = 1 << 16

// FromCuts returns the synchronous plan whose stages begin at layer 0 and at the cuts, each on its own device. Cuts
// are positions of a model's layers, ascending.
func FromCuts(cuts []int, layers, microBatch, microBatches int) (*Plan, error) {
	p := &Plan{
		Version: Version, Replication: "split", MicroBatch: microBatch, MicroBatches: microBatches,
		Schedule: "1f1b", Weights: "sync", Planner: "imported",
	}
	ends := append(slices.Clone(cuts), layers)
	first := 0
	for i, end := range ends {
		p.Stages = append(p.Stages, Stage{FirstLayer: first, LastLayer: end - 1, Devices: []int{i},
			Warmup: min(len(ends)-i, max(microBatches, 1))})
		first = end
	}
	if len(p.Stages) == 1 {
		p.Schedule = "dp"
	}
	return p, p.Validate()
}

// ReadSplitPoints reads split_spec, a JSON object from layer names to BEGINNING or END. BEGINNING means that a stage
// begins with the layer, and END that a stage ends with it.
func ReadSplitPoints(text []byte, layers []string) ([]int, error) {
	var spec map[string]string
	if err := decodeWhole(text, &spec); err != nil {
		return nil, fmt.Errorf("plan: split points: %w; they are a JSON object like {\"block3.attention\": "+
			"\"BEGINNING\"}", err)
	}
	var cuts []int
	for name, point := range spec {
		at := slices.Index(layers, name)
		switch {
		case at < 0:
			return nil, fmt.Errorf("plan: split points: the model has no layer %q", name)
		case point == "END":
			at++
		case point != "BEGINNING":
			return nil, fmt.Errorf("plan: split points: %q is %q; it is BEGINNING or END", name, point)
		}
		if at == 0 || at == len(layers) {
			return nil, fmt.Errorf("plan: split points: the %s of %q leaves a stage without layers",
				strings.ToLower(point), name)
		}
		cuts = append(cuts, at)
	}
	slices.Sort(cuts)
	return slices.Compact(cuts), nil // one stage may end where the next one begins
}

// ReadDeepSpeedParts reads the parts of DeepSpeed's PipelineModule: a JSON list from 0 to
// the number of layers.
func ReadDeepSpeedParts(text []byte, layers []string) ([]int, error) {
	var parts []int
	if err := decodeWhole(text, &parts); err != nil {
		return nil, fmt.Errorf("plan: parts: %w; they are a JSON list like [0, 5, 12]", err)
	}
	if len(parts) < 2 || parts[0] != 0 || parts[len(parts)-1] != len(layers) {
		return nil, fmt.Errorf("plan: parts: %v; they begin with 0 and end with the model's %d layers",
			parts[:min(len(parts), 16)], len(layers))
	}
	for i := 1; i < len(parts); i++ {
		if parts[i] <= parts[i-1] {
			return nil, fmt.Errorf("plan: parts: stage %d is from layer %d up to %d; it needs a layer at least", i-1,
				parts[i-1], parts[i])
		}
	}
	return parts[1 : len(parts)-1], nil
}

// LayoutFlag is the Megatron-LM flag that says which layers each stage has.
const LayoutFlag = "--pipeline-model-parallel-layout"

// ReadMegatronLayout reads Megatron-LM's --pipeline-model-parallel-layout, by itself or among other flags. It accepts
// the symbols that MegatronLayout writes, | between stages, and x*n or (...)*n for repetitions; commas are ignored. It
// refuses layouts of other models, and the symbol m for layers that predict several tokens. It also refuses stages
// without a layer, which Megatron-LM allows for stages that only send data on.
func ReadMegatronLayout(layout string, layers []string) ([]int, error) {
	if _, behind, is := strings.Cut(layout, LayoutFlag); is {
		behind = strings.TrimLeft(behind, "= \t")
		if quoted, _, is := strings.Cut(strings.TrimPrefix(behind, "'"), "'"); is && strings.HasPrefix(behind, "'") {
			layout = quoted
		} else if fields := strings.Fields(behind); len(fields) > 0 {
			layout = fields[0]
		}
	}
	fail := func(format string, args ...any) ([]int, error) {
		return nil, fmt.Errorf("plan: layout: "+format, args...)
	}
	symbols, begins, err := megatronSymbols(layers)
	if err != nil {
		return nil, err
	}
	var have []int // first layer of each of the model's symbols
	for l := range layers {
		if begins[l] {
			have = append(have, l)
		}
	}
	stages, err := unrollLayout(strings.TrimSpace(layout), len(have))
	if err != nil {
		return nil, err
	}
	var cuts []int
	at := 0
	for i, stage := range stages {
		if stage == "" {
			return fail("stage %d of %d is empty; a stage has a layer here", i, len(stages))
		}
		if i > 0 && at < len(have) {
			cuts = append(cuts, have[at])
		}
		for _, symbol := range []byte(stage) {
			if at == len(have) {
				return fail("stage %d has %q behind the model's %d symbols, the loss being the last", i, symbol,
					len(have))
			}
			if want := symbols[have[at]]; symbol != want {
				return fail("stage %d has %q where the model has %q: layer %d (%s)", i, symbol, want, have[at],
					layers[have[at]])
			}
			at++
		}
	}
	if at < len(have) {
		return fail("it ends with %d of the model's %d symbols; layer %d (%s) is next", at, len(have), have[at],
			layers[have[at]])
	}
	return cuts, nil
}

// unrollLayout writes out the repetitions of a layout and returns its stages. `most` is the number of the model's
// symbols.
func unrollLayout(layout string, most int) ([]string, error) {
	var out strings.Builder
	limit := 2*most + maxLayoutStages
	text := strings.Map(func(r rune) rune {
		if r == ',' {
			return -1
		}
		return r
	}, layout)
	for i := 0; i < len(text); {
		part, after := text[i:i+1], i+1
		switch {
		case part == "(":
			end := strings.IndexByte(text[i:], ')')
			if end < 0 {
				return nil, fmt.Errorf("plan: layout: a ( without )")
			}
			part, after = text[i+1:i+end], i+end+1
			if strings.ContainsAny(part, "(*") {
				return nil, fmt.Errorf("plan: layout: (%s) has a repetition inside; groups do not nest", part)
			}
		case part != "|" && part != "E" && part != "t" && part != "L":
			return nil, fmt.Errorf("plan: layout: %q at %d; it has E, t, L, | and repetitions like t*3 or (tt|)*3",
				text[i:i+1], i)
		}
		times := 1
		if after < len(text) && text[after] == '*' {
			end := after + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			n, err := strconv.Atoi(text[after+1 : end])
			if err != nil || n < 1 || n > limit {
				return nil, fmt.Errorf("plan: layout: %q is repeated %q times; a number from 1 to %d", part,
					text[after+1:end], limit)
			}
			times, after = n, end
		}
		if strings.Trim(part, "EtL|") != "" {
			return nil, fmt.Errorf("plan: layout: (%s) has something beside E, t, L and |", part)
		}
		if out.Len()+times*len(part) > limit {
			return nil, fmt.Errorf("plan: layout: more than %d symbols and stages; the model has %d symbols", limit,
				most)
		}
		out.WriteString(strings.Repeat(part, times))
		i = after
	}
	return strings.Split(out.String(), "|"), nil
}

// decodeWhole reads JSON and refuses anything after it.
func decodeWhole(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind its end")
	}
	return nil
}
