package published

import (
	"embed"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/tune/measured"
	"github.com/millrace-ml/millrace/tune/shape"
)

// The measurements as collected, with a README of sources and rules of use.
//
//go:embed data/*.csv data/*.md
var data embed.FS

// Entry is a measured run: what was trained on which devices, and the time of a step.
type Entry struct {
	ID, Source  string
	Calibration bool   // used for calibration; predictions are judged by the other entries
	Preset      string // a device with its software, such as megatron-core-h100
	Model       Model
	Shape       shape.Shape
	StepS       float64
	Group       string // names the runs (one model on one device) whose order by step time is compared; empty: none
	// Least and Most are the limits between which StepS must lie, because the source prints a rounded rate. They are 0
	// if they are not known.
	Least, Most float64
	// Open lists settings that the source does not print. The fastest settings that fit are used.
	Open []string
	Skip string // why there is no prediction
}

// Model is a transformer's shape.
type Model = measured.Transformer

// row maps the columns of a CSV file to the fields of one line.
type row map[string]string

func rows(name string) ([]row, error) {
	f, err := data.Open("data/" + name + ".csv")
	if err != nil {
		return nil, fmt.Errorf("reproduce: published: %w", err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reproduce: published: %s: %w", name, err)
	}
	var out []row
	for _, line := range all[1:] {
		r := row{}
		for i, column := range all[0] {
			r[column] = line[i]
		}
		out = append(out, r)
	}
	return out, nil
}

// count returns the whole number in a column; 0 if the column is empty.
func (r row) count(column string) int {
	n, _ := strconv.Atoi(r[column])
	return n
}

// number returns the number in a column; 0 if the column is empty.
func (r row) number(column string) float64 {
	v, _ := strconv.ParseFloat(r[column], 64)
	return v
}

// gpt returns the model of a row, from the columns that most files have.
func (r row) gpt() Model {
	m := Model{Layers: r.count("layers"), Hidden: r.count("hidden"), Heads: r.count("heads"),
		Positions: r.count("seq_len"), Vocabulary: r.count("vocab"), Tied: true}
	if m.Vocabulary == 0 {
		m.Vocabulary = 51200
	}
	return m
}

// flops returns the operations of a step by Narayanan et al.'s formula with full recompute (SC 2021, equation 3).
// Without recompute it uses the formula of 2022 (equation 7).
func flops(m Model, batch int, again bool) float64 {
	s, h, l, v := float64(m.Positions), float64(m.Hidden), float64(m.Layers), float64(m.Vocabulary)
	if again {
		return 96 * float64(batch) * s * l * h * h * (1 + s/(6*h) + v/(16*l*h))
	}
	return 72 * float64(batch) * s * l * h * h * (1 + s/(6*h) + v/(12*h*l))
}

// sources lists the files and the readers of their rows.
var sources = []struct {
	name string
	read func(r row, e *Entry)
}{
	{"megatron_sc21_table1_weak_scaling", sc21Table1},
	{"megatron_sc21_table2_ptd_vs_zero3", sc21Table2},
	{"megatron_sc21_text_facts", sc21Text},
	{"recompute_paper_table5_iteration_time", recompute},
	{"megatron_core_h100_scaling", megatronCore},
	{"megatron_bridge_dense_llama", bridge},
	{"zero_bubble_throughput", zeroBubble},
	{"torchtitan_throughput", torchtitan},
	{"gpt2_single_node", gpt2},
	{"llm_foundry_mpt", mpt},
	{"nanotron_llama1b_h100", nanotron},
	{"gpipe_relative_throughput", func(_ row, e *Entry) {
		e.Skip = "speeds relative to another run of the same paper on TPUs, of which no rate is known"
	}},
}

// Entries returns all rows that are used for judging or calibrating. It leaves out rows that only give context.
func Entries() ([]Entry, error) {
	var out []Entry
	for _, s := range sources {
		all, err := rows(s.name)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if r["role"] != "judged" && r["role"] != "calibration" {
				continue
			}
			e := Entry{ID: r["id"], Source: s.name, Calibration: r["role"] == "calibration",
				Shape: shape.Shape{States: 2, Recompute: "none"}}
			if s.read(r, &e); e.Skip == "" && !(e.StepS > 0) {
				return nil, fmt.Errorf("reproduce: published: %s has no time of a step", e.ID)
			}
			out = append(out, e)
		}
	}
	return out, nil
}

func sc21(r row, e *Entry) {
	e.Preset, e.Model = "megatron-a100", r.gpt()
	e.Model.Dropout = true
	e.Shape.Tensor, e.Shape.Stages, e.Shape.Batch = r.count("tp"), r.count("pp"), r.count("global_batch")
	e.Shape.MicroBatch, e.Shape.Chunks = r.count("micro_batch"), r.count("virtual_stages_per_device")
	e.Shape.Replicas = r.count("dp")
	e.Shape.Precision, e.Shape.Recompute, e.Shape.Behind = "f16", "full", true
	e.StepS = r.number("iteration_s_derived")
}

func sc21Table1(r row, e *Entry) { sc21(r, e) }

// chunked sets the number of chunks as in the tables: 530B has one block in each virtual stage, and 175B has two.
func (e *Entry) chunked() {
	each := 2
	if e.Model.Layers == 105 {
		each = 1
	}
	e.Shape.Chunks = max(1, e.Model.Layers/e.Shape.Stages/each)
}

func sc21Table2(r row, e *Entry) {
	sc21(r, e)
	e.Shape.Replicas = r.count("gpus") / (e.Shape.Tensor * e.Shape.Stages)
	e.chunked()
	e.StepS = flops(e.Model, e.Shape.Batch, true) / (r.number("tflops_per_gpu") * 1e12 * r.number("gpus"))
	e.Group = fmt.Sprintf("sc21-t2-%d", e.Model.Layers)
}

func sc21Text(r row, e *Entry) {
	switch r["id"] {
	case "sc21-text-1", "mlm-readme-1":
		e.Preset, e.Model = "megatron-a100", Model{Layers: 96, Hidden: 12288, Heads: 96, Positions: 2048, Vocabulary: 51200,
			Tied: true, Dropout: true}
		e.Shape.Tensor, e.Shape.Stages, e.Shape.Replicas, e.Shape.Batch, e.Shape.MicroBatch = 8, 16, 8, 1536, 1
		e.chunked()
		e.Shape.Precision, e.Shape.Recompute, e.Shape.Behind = "f16", "full", true
		if e.StepS = r.number("value"); r["id"] == "sc21-text-1" {
			e.StepS = flops(e.Model, 1536, true) / (140e12 * 1024)
		}
	default:
		e.Skip = "a claim on which of several unprinted runs is best, or a rate of links: no step's time"
	}
}

func recompute(r row, e *Entry) {
	sc21(r, e)
	e.Shape.Recompute, e.Shape.SequenceParallel = r["recompute"], r["sequence_parallel"] == "yes"
	e.StepS = r.number("iteration_s")
	e.Group = "kor-" + r["model"]
}

func megatronCore(r row, e *Entry) {
	if e.Shape.Tensor = r.count("tp"); e.Shape.Tensor == 0 {
		e.Skip = "its layout is not printed"
		return
	}
	e.Preset, e.Model = "megatron-core-h100", r.gpt()
	e.Model.Tied = false
	e.Shape.Stages, e.Shape.Replicas, e.Shape.Batch = r.count("pp"), r.count("dp"), r.count("global_batch")
	e.Shape.Precision, e.Shape.SequenceParallel, e.Shape.Shard = "bf16", e.Shape.Tensor > 1, "zero1"
	// "gradient, parameter, tensor- and pipeline-communication overlap on" (data/README.md)
	e.Shape.AsyncTensor, e.Shape.WeightsAhead = true, true
	e.Open = []string{"micro_batch", "chunks", "recompute"}
	e.StepS = flops(e.Model, e.Shape.Batch, false) / (r.number("tflops_per_gpu") * 1e12 * r.number("gpus"))
}

// llama returns the model with the given name, if it is one of the listed models. It reads llama3.1 as llama3.
func llama(name string, positions int) (Model, bool) {
	name = strings.ToLower(strings.NewReplacer("_", "-", "llama3.1", "llama3").Replace(strings.ToLower(name)))
	for _, m := range []struct {
		name string
		Model
	}{
		{"llama3-8b", Model{Layers: 32, Hidden: 4096, Heads: 32, KV: 8, FFN: 14336, Vocabulary: 128256}},
		{"llama3-70b", Model{Layers: 80, Hidden: 8192, Heads: 64, KV: 8, FFN: 28672, Vocabulary: 128256}},
		{"llama3-405b", Model{Layers: 126, Hidden: 16384, Heads: 128, KV: 8, FFN: 53248, Vocabulary: 128256}},
		// Touvron et al., Llama 2, 2023.
		{"llama2-13b", Model{Layers: 40, Hidden: 5120, Heads: 40, KV: 40, FFN: 13824, Vocabulary: 32000}},
		{"llama2-70b", Model{Layers: 80, Hidden: 8192, Heads: 64, KV: 8, FFN: 28672, Vocabulary: 32000}},
	} {
		if m.name == name {
			m.Positions = positions
			return m.Model, true
		}
	}
	return Model{}, false
}

func bridge(r row, e *Entry) {
	m, ok := llama(r["model"], r.count("seq_len"))
	system := strings.ToLower(strings.TrimPrefix(r["system"], "DGX-"))
	switch {
	case !ok:
		e.Skip = "its model's shape is not known"
	case r.count("cp") > 1:
		e.Skip = "context parallel: positions of one sample over several devices, which no shape here has"
	case system == "gb300":
		e.Skip = "no row of this device may set a preset"
	case strings.HasPrefix(r["precision"], "MX"):
		e.Skip = "block-scaled fp8, of which no row may set a preset"
	}
	e.Preset, e.Model = "bridge-"+system, m
	s := &e.Shape
	s.Tensor, s.Stages, s.Replicas = max(1, r.count("tp")), max(1, r.count("pp")), r.count("dp_derived")
	s.Batch, s.MicroBatch = r.count("global_batch"), r.count("micro_batch")
	s.Chunks = max(1, r.count("virtual_stages_per_device"))
	s.Precision, s.SequenceParallel, s.Shard = "fp8", s.Tensor > 1, "zero1"
	if r.count("fsdp") > 0 {
		s.Shard = "zero3"
	}
	s.GradientBytes = 2 // grad_reduce_in_fp32 is False in all of scripts/performance/configs/llama
	e.StepS = r.number("global_batch") * r.number("seq_len") / (r.number("tokens_per_s_per_gpu") * r.number("gpus"))
	e.Group = e.Preset + r["model"]
}

// ahead is the preset of the runtime that Qi et al. wrote for their schedules.
const ahead = "zero-bubble-a100-ahead"

func zeroBubble(r row, e *Entry) {
	e.Preset, e.Model = "zero-bubble-a100", r.gpt()
	e.Model.Dropout = true
	s := &e.Shape
	s.Stages, s.MicroBatch = r.count("pp"), r.count("micro_batch")
	s.Batch, s.Precision = s.MicroBatch*r.count("microbatches"), "f16"
	s.NoFlush = r["optimizer_sync"] == "post-validation"
	switch r["schedule"] {
	case "1F1B":
		s.Schedule = "1f1b"
	case "1F1B-I":
		s.Schedule, s.Chunks = "interleaved", (e.Model.Layers+2)/s.Stages
	case "ZB-1p":
		e.Preset, s.Schedule, s.Room = ahead, "zb-auto", s.Stages
	case "ZB-2p", "ZB-2p*":
		e.Preset, s.Schedule, s.Room = ahead, "zb-auto", 2*s.Stages
	case "ZB-V":
		e.Preset, s.Schedule, s.Chunks = ahead, "zb-v", 2
	default:
		e.Skip = "schedule " + r["schedule"]
	}
	e.StepS = r.number("iteration_s_derived")
	e.Least, e.Most = printed(r["samples_per_s_per_gpu"], float64(s.Batch)/float64(s.Stages))
	e.Group = fmt.Sprintf("zb-%d-%d-%d-%d", e.Model.Layers, s.Stages, s.MicroBatch, s.Batch)
}

// printed returns the shortest and the longest time that an amount of work can take, if its rate is printed and
// therefore rounded. A rate below 10 is rounded to two decimals. A rate from 10 on is rounded to one decimal, unless
// two are printed. The CSV leaves out zeros at the end.
func printed(rate string, work float64) (least, most float64) {
	v, _ := strconv.ParseFloat(rate, 64)
	half := 0.005
	if _, decimals, _ := strings.Cut(rate, "."); v >= 10 && len(decimals) < 2 {
		half = 0.05
	}
	return work / (v + half), work / (v - half)
}

func torchtitan(r row, e *Entry) {
	m, ok := llama(r["model"], r.count("seq_len"))
	s := &e.Shape
	s.Precision, s.Shard, s.GradientBytes = "bf16", "zero3", 4
	if strings.HasPrefix(r["precision"], "float8") {
		s.Precision = "fp8"
	}
	family := "titan-h100"
	switch {
	case r["device"] == "H200":
		family = "titan-h200"
	case strings.HasPrefix(r["device"], "A100"):
		family = "titan-a100"
	}
	if r["compile"] == "no" {
		family += "-eager"
	}
	switch {
	case !ok:
		e.Skip = "its model's shape is not known"
	case r.count("cp") > 1:
		e.Skip = "context parallel: positions of one sample over several devices, which no shape here has"
	case strings.Contains(r["precision"], "rowwise"):
		e.Skip = "fp8 with a scale a row, of which no row may set a preset"
	}
	e.Preset, e.Model = family, m
	s.Tensor, s.Stages, s.Replicas = max(1, r.count("tp")), max(1, r.count("pp")), r.count("fsdp")
	s.SequenceParallel = s.Tensor > 1
	s.AsyncTensor = strings.Contains(strings.ToLower(r["note"]), "async tp") || strings.HasSuffix(r["id"], "-async")
	local := r.count("local_batch")
	s.Batch, s.MicroBatch = local*s.Replicas, local
	if s.Stages > 1 { // by default there is a micro-batch for each stage, at the commit of these runs
		s.MicroBatch = max(1, local/s.Stages)
		s.Shard = "zero2"
		if strings.HasPrefix(r["schedule"], "Interleaved") {
			s.Chunks = 2
		}
	}
	s.Recompute = map[string]string{"full": "full", "selective layer": "alternate", "selective op": "operators",
		"selective": "operators", "none": "none"}[r["activation_checkpointing"]]
	if r["device"] == "H200" {
		s.WeightBytes = 1 // its command has --float8.enable_fsdp_float8_all_gather
	}
	e.StepS = float64(s.Batch) * r.number("seq_len") / (r.number("tokens_per_s_per_gpu") * r.number("gpus"))
	e.Group = family + r["model"]
}

func gpt2(r row, e *Entry) {
	e.Preset = "llmc-a100"
	e.Model = Model{Layers: r.count("layers"), Hidden: r.count("hidden"), Heads: r.count("heads"),
		Positions: r.count("seq_len"), Vocabulary: r.count("vocab_padded"), Tied: true}
	s := &e.Shape
	s.Replicas, s.MicroBatch, s.Precision, s.Shard = r.count("gpus"), r.count("micro_batch"), "bf16", "zero1"
	s.GradientBytes = 2
	s.Batch = r.count("tokens_per_step") / e.Model.Positions
	if e.StepS = r.number("step_ms") / 1e3; e.StepS == 0 {
		e.StepS = r.number("tokens_per_step") / (r.number("tokens_per_s_per_gpu_derived") * r.number("gpus"))
	}
	switch {
	case strings.HasPrefix(r["id"], "nanogpt"):
		e.Skip = "its time is a range, 0.58 to 0.72 s, and no row of its software may set a preset"
	case strings.HasPrefix(r["device"], "H100"):
		e.Skip = "no row of this software on an H100 may set a preset"
	}
}

func mpt(r row, e *Entry) {
	e.Preset = "mpt-" + strings.ReplaceAll(strings.TrimSuffix(r["gpu"], "gb"), "_", "-")
	e.Model = r.gpt()
	s := &e.Shape
	s.Replicas, s.MicroBatch, s.Batch = r.count("gpus"), r.count("micro_batch"), r.count("global_batch")
	s.Precision, s.Recompute, s.Shard, s.GradientBytes = "bf16", r["recompute"], "zero3", 2
	if r["sharding"] == "SHARD_GRAD_OP" {
		s.Shard = "zero2"
	}
	if strings.HasSuffix(r["precision"], "fp8") {
		e.Skip = "fp8, of which no row of this software may set a preset"
	}
	e.StepS = r.number("global_batch") * r.number("seq_len") / r.number("tokens_per_s")
	e.Group = e.Preset + r["model"]
}

func nanotron(r row, e *Entry) {
	e.Preset = "nanotron-h100"
	e.Model = Model{Layers: r.count("layers"), Hidden: r.count("hidden"), Heads: r.count("heads"), KV: r.count("heads"),
		FFN: r.count("ffn_hidden"), Positions: r.count("seq_len"), Vocabulary: r.count("vocab"), Tied: true}
	s := &e.Shape
	s.Tensor, s.Stages, s.Replicas = r.count("tp"), r.count("pp"), r.count("dp")
	s.MicroBatch, s.Batch = r.count("micro_batch"), r.count("global_batch")
	s.Precision, s.SequenceParallel, s.Shard = "bf16", s.Tensor > 1, "zero1"
	e.StepS = r.number("iteration_s_median")
	e.Group = fmt.Sprintf("nanotron-%d", r.count("gpus"))
}

// off returns the relative error of a prediction.
func off(ours, measured float64) float64 { return math.Abs(ours/measured - 1) }
