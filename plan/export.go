package plan

import (
	"fmt"
	"slices"
	"strings"
)

// The functions here write a plan's cut points for other runtimes. They refuse a plan with a setting that the runtime
// cannot express, because the runtime would run a different plan under the same name. The error says which setting.

// exportable refuses plans that the target runtime cannot run.
func (p *Plan) exportable(target string) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("plan: it cannot be written for %s: %s", target, fmt.Sprintf(format, args...))
	}
	if len(p.Stages) == 0 {
		return refuse("it has no stages")
	}
	for at, l := range p.Order {
		if at != l {
			return refuse("it runs layer %d at position %d of its own order; %s runs layers in the model's order", l,
				at, target)
		}
	}
	if p.Weights != "" && p.Weights != "sync" {
		return refuse("its weights are %s; %s updates synchronously, once a step", p.Weights, target)
	}
	if p.Tensor != nil && target != "Megatron-LM" {
		return refuse("its devices are tensor-parallel groups of %d; %s has no words for that", p.Tensor.Devices, target)
	}
	if p.Shard != ShardNothing && target != "Megatron-LM" {
		return refuse("its replicas divide what they keep (shard %s), which %s is told elsewhere than where stages begin",
			p.Shard, target)
	}
	replicas := len(p.Stages[0].Devices)
	for i, s := range p.Stages {
		if s.FirstFraction != 0 && s.FirstFraction != 1 || s.LastFraction != 0 && s.LastFraction != 1 {
			return refuse("stage %d computes a fraction of a layer; %s gives each layer to one stage", i, target)
		}
		if len(s.Devices) != replicas {
			return refuse("stage %d has %d replicas and stage 0 has %d; %s has as many of every stage", i,
				len(s.Devices), replicas, target)
		}
	}
	if replicas > 1 && p.Replication != "split" {
		return refuse("its %d replicas take micro-batches in turn; in %s they take a slice of every one, as in plans of "+
			"--sweep -o", replicas, target)
	}
	return nil
}

// sameRecompute refuses plans whose stages recompute differently.
func (p *Plan) sameRecompute(target string) error {
	for i, s := range p.Stages {
		if s.Recompute != p.Stages[0].Recompute {
			return fmt.Errorf("plan: it cannot be written for %s: recompute is %v for stage %d and %v for stage 0; "+
				"%s has one setting for all", target, s.Recompute, i, p.Stages[0].Recompute, target)
		}
	}
	return nil
}

// named refuses a plan that has more or fewer layers than there are names.
func (p *Plan) named(layers []string) error {
	if last := p.Stages[len(p.Stages)-1].LastLayer; last != len(layers)-1 {
		return fmt.Errorf("plan: its last stage ends with layer %d; the model has %d layers", last, len(layers))
	}
	return nil
}

// SplitPoints returns the names of the first layers of all stages except the first one. PyTorch's
// torch.distributed.pipelining takes them as split_spec, each with SplitPoint.BEGINNING. `layers` has the name of each
// layer.
func (p *Plan) SplitPoints(layers []string) ([]string, error) {
	if err := p.exportable("PyTorch"); err != nil {
		return nil, err
	}
	if err := p.named(layers); err != nil {
		return nil, err
	}
	points := []string{}
	for _, s := range p.Stages[1:] {
		points = append(points, layers[s.FirstLayer])
	}
	return points, nil
}

// DeepSpeedParts returns the parts of DeepSpeed's PipelineModule. Stage i has layers parts[i] to parts[i+1]-1; the
// last element is the number of layers.
func (p *Plan) DeepSpeedParts() ([]int, error) {
	if err := p.exportable("DeepSpeed"); err != nil {
		return nil, err
	}
	if err := p.sameRecompute("DeepSpeed"); err != nil {
		return nil, err
	}
	parts := []int{0}
	for _, s := range p.Stages {
		parts = append(parts, s.LastLayer+1)
	}
	return parts, nil
}

// MegatronLayout returns Megatron-LM's --pipeline-model-parallel-layout. Stages are separated by |; E is an embedding,
// t a transformer layer, L the loss, and t*n repeats a symbol. Layers named like block7.attention and block7.mlp are
// transformer layer 7. Layers before the first block are the embedding. Layers after the last block are the loss,
// including norm and projection. It refuses other models, and stages that begin inside a transformer layer, the
// embedding or the loss.
func (p *Plan) MegatronLayout(layers []string) (string, error) {
	const target = "Megatron-LM"
	if err := p.exportable(target); err != nil {
		return "", err
	}
	if err := p.sameRecompute(target); err != nil {
		return "", err
	}
	if err := p.named(layers); err != nil {
		return "", err
	}
	symbols, begins, err := megatronSymbols(layers)
	if err != nil {
		return "", err
	}
	var stages []string
	for i, s := range p.Stages {
		if !begins[s.FirstLayer] {
			return "", fmt.Errorf("plan: it cannot be written for %s: stage %d begins with %s, inside %s; plan with "+
				"--split before the first layer of one, or write a plan of whole blocks with --sweep -o",
				target, i, layers[s.FirstLayer], map[byte]string{'E': "the embedding", 't': "a transformer layer",
					'L': "the loss and what comes before it"}[symbols[s.FirstLayer]])
		}
		stage, blocks := "", 0
		flush := func() {
			switch {
			case blocks == 1:
				stage += "t"
			case blocks > 1:
				stage += fmt.Sprintf("t*%d", blocks)
			}
			blocks = 0
		}
		for l := s.FirstLayer; l <= s.LastLayer; l++ {
			switch {
			case !begins[l]:
			case symbols[l] == 't':
				blocks++
			default:
				flush()
				stage += string(symbols[l])
			}
		}
		flush()
		stages = append(stages, stage)
	}
	return strings.Join(stages, "|"), nil
}

// MegatronFlags returns Megatron-LM's flags other than the layout: sizes of groups and batches, number format,
// recompute, and how replicas shard and sum.
func (p *Plan) MegatronFlags() []string {
	replicas := max(1, len(p.Stages[0].Devices)) // exportable checks that replicas split micro-batches
	flags := []string{
		fmt.Sprintf("--pipeline-model-parallel-size %d", max(1, len(p.Devices())/replicas)),
		fmt.Sprintf("--micro-batch-size %d", p.MicroBatch/replicas), fmt.Sprintf("--global-batch-size %d", p.Batch())}
	if p.Tensor != nil {
		flags = append(flags, fmt.Sprintf("--tensor-model-parallel-size %d", p.Tensor.Devices))
		if p.Tensor.SequenceParallel {
			flags = append(flags, "--sequence-parallel")
		}
	}
	if p.Precision == "bf16" {
		flags = append(flags, "--bf16")
	} else if p.Precision == "f16" {
		flags = append(flags, "--fp16")
	}
	switch p.Stages[0].Recompute { // sameRecompute checks that it is the same for all stages
	case Blocks:
		flags = append(flags, "--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1")
	case Selective:
		flags = append(flags, "--recompute-granularity selective")
	}
	if replicas == 1 {
		return flags
	}
	switch p.Shard {
	case ZeRO1:
		flags = append(flags, "--use-distributed-optimizer")
	case ZeRO2:
		flags = append(flags, fsdp("optim_grads")...)
	case ZeRO3: // weights are gathered while forwards run
		flags = append(flags, append(fsdp("optim_grads_params"), "--overlap-param-gather")...)
	}
	if p.Gradients != GradientsBehind {
		flags = append(flags, "--overlap-grad-reduce")
	}
	if n := p.Gradients.BucketBytes(); n > 0 { // the flag counts gradients of 32 bits, not bytes
		flags = append(flags, fmt.Sprintf("--ddp-bucket-size %d", max(1, n/4)))
	}
	return flags
}

// fsdp returns the flags of Megatron-Core's FSDP for a sharding strategy, as its documentation lists them.
func fsdp(strategy string) []string {
	return []string{"--use-megatron-fsdp", "--data-parallel-sharding-strategy " + strategy,
		"--use-distributed-optimizer", "--no-gradient-accumulation-fusion"}
}

// megatronSymbols returns the symbol of each layer, and which layers begin a symbol.
func megatronSymbols(layers []string) (symbols []byte, begins []bool, err error) {
	first := slices.IndexFunc(layers, func(name string) bool { return BlockOf(name) != "" })
	if first < 1 {
		return nil, nil, fmt.Errorf("plan: it cannot be written for Megatron-LM: the model has no embedding followed " +
			"by transformer layers, named like block1.attention; its layouts have nothing else")
	}
	last := len(layers) - 1
	for last > first && BlockOf(layers[last]) == "" {
		last--
	}
	symbols, begins = make([]byte, len(layers)), make([]bool, len(layers))
	kind, seen := strings.TrimRight(BlockOf(layers[first]), "0123456789"), map[string]bool{}
	for l, name := range layers {
		switch {
		case l < first:
			symbols[l], begins[l] = 'E', l == 0
		case l > last:
			symbols[l], begins[l] = 'L', l == last+1
		default:
			b := BlockOf(name)
			begins[l] = l == first || b != BlockOf(layers[l-1])
			if strings.TrimRight(b, "0123456789") != kind || begins[l] && seen[b] {
				return nil, nil, fmt.Errorf("plan: it cannot be written for Megatron-LM: layer %d (%s) stands "+
					"between transformer layers named %s1, %s2, ...; its layouts have nothing there",
					l, name, kind, kind)
			}
			seen[b] = true
			symbols[l] = 't'
		}
	}
	if last == len(layers)-1 {
		return nil, nil, fmt.Errorf("plan: it cannot be written for Megatron-LM: nothing comes behind the last "+
			"transformer layer (%s); its layouts end with the loss", layers[last])
	}
	return symbols, begins, nil
}
