// Package defaults trains built-in models with default settings, and reports the loss that they reach.
//
// In: a program `millrace`, a text, a folder to work in, and Pairs of a model and suitable data. Out: a Result for each
// Pair, with the first loss, the loss reached, and whether the Pair's promise is kept. The promise is a loss below a
// bound at the end, and no loss more than a fifth above the first one. Refused: a training that fails, with its output.
//
// Trainings use one worker, because every synchronous pipeline without replicas gets the same weights.
package defaults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/safetensors"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/report/folder"
)

// Kinds of data besides the names of data sets.
const (
	Text   = "text"   // the caller's text
	Random = "random" // 64 samples of noise, which a model can memorise
)

// Pair is a model with data, and the loss that its training promises to reach.
type Pair struct {
	Name     string   `json:"name"`
	Model    string   `json:"model"`
	Settings []string `json:"settings,omitempty"`
	Data     string   `json:"data"`
	Batch    int      `json:"batch"`
	Steps    int      `json:"steps"`
	Below    float64  `json:"below"` // bound of the mean loss of the last ten steps
}

// Result is the result of a training.
type Result struct {
	Pair
	Training model.Training `json:"training"`
	First    float64        `json:"first_loss"`
	Highest  float64        `json:"highest_loss"`
	At       int            `json:"highest_at"`   // the step with the highest loss, counted from 1
	Reached  float64        `json:"reached_loss"` // the mean of the last ten steps
	Accuracy *float64       `json:"accuracy,omitempty"`
}

// spike limits every loss relative to the first one. Losses of single batches vary by less than this.
const spike = 1.2

// Wrong says which promise of its Pair a Result breaks; "" if none.
func (r Result) Wrong() string {
	switch {
	case !(r.Reached < r.Below):
		return fmt.Sprintf("the loss is %.4g after %d steps; %g is promised", r.Reached, r.Steps, r.Below)
	case !(r.Highest <= spike*r.First):
		return fmt.Sprintf("the loss rises from %.4g to %.4g at step %d", r.First, r.Highest, r.At)
	}
	return ""
}

// Results is a file of results.
type Results struct {
	Version int      `json:"version"`
	Results []Result `json:"results"`
}

// Read reads the file; a missing file has no results.
func Read(path string) (*Results, error) {
	r := &Results{}
	text, err := document.Read(path, document.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = document.Decode(text, 1, r)
	}
	if err != nil {
		return nil, fmt.Errorf("defaults: %s: %w", path, err)
	}
	return r, nil
}

// Put adds a result, or replaces the one with the same name.
func (r *Results) Put(one Result) {
	at := slices.IndexFunc(r.Results, func(other Result) bool { return other.Name == one.Name })
	if at < 0 {
		r.Results = append(r.Results, one)
		return
	}
	r.Results[at] = one
}

// Write writes the file.
func (r *Results) Write(path string) error {
	r.Version = 1
	return document.WriteJSON(path, r)
}

// Runner trains Pairs.
type Runner struct {
	Program string   // the program millrace
	Env     []string // environment of Program; nil: that of this process
	Text    string   // the file for the data Text
	Dir     string   // folder of trainings
}

// Run trains a pair.
func (r *Runner) Run(ctx context.Context, p Pair) (Result, error) {
	var settings []string
	for _, s := range p.Settings {
		settings = append(settings, "--set", s)
	}
	of := append([]string{"--model", p.Model, "--batch", strconv.Itoa(p.Batch), "--workers", "1"}, settings...)
	out, costs := filepath.Join(r.Dir, p.Name), filepath.Join(r.Dir, p.Name+".profile.json")
	data, err := r.data(p)
	if err != nil {
		return Result{}, err
	}
	// The plan has one worker in any case, so the shortest profile is enough.
	err = r.millrace(ctx, slices.Concat([]string{"profile", "-o", costs, "--passes", "1", "--sizes",
		strconv.Itoa(p.Batch)}, of))
	if err != nil {
		return Result{}, err
	}
	err = r.millrace(ctx, slices.Concat([]string{"train", "--profile", costs, "--out", out, "--overwrite", "--stages", "1",
		"--micro-batches", "1", "--steps", strconv.Itoa(p.Steps)}, of, data))
	if err != nil {
		return Result{}, err
	}
	run, err := folder.Read(out)
	if err != nil {
		return Result{}, err
	}
	return resultOf(p, run)
}

// resultOf returns the result of a pair from its run's folder.
func resultOf(p Pair, run *folder.Run) (Result, error) {
	res := Result{Pair: p, Training: model.TrainingOf(p.Model)}
	var last []float64
	for _, l := range run.Losses() {
		if l.Step == 0 {
			res.First = l.Value
		}
		if l.Value > res.Highest {
			res.Highest, res.At = l.Value, l.Step+1 // Step counts from 0
		}
		if l.Step >= p.Steps-10 {
			last = append(last, l.Value)
		}
	}
	if len(last) != 10 {
		return res, fmt.Errorf("defaults: %s: the folder has losses of %d of the last 10 steps", p.Name, len(last))
	}
	res.Reached = stats.Mean(last)
	if e := run.Evaluations(); len(e) > 0 && e[len(e)-1].Samples > 0 {
		res.Accuracy = new(e[len(e)-1].Accuracy())
	}
	return res, nil
}

// data returns the flags for a pair's data. If the data are Random, it makes them.
func (r *Runner) data(p Pair) ([]string, error) {
	switch p.Data {
	case Text:
		return []string{"--data", r.Text, "--eval-rows", "64"}, nil
	case Random:
		path := filepath.Join(r.Dir, p.Name+".safetensors")
		return []string{"--data", path, "--train-part", "1"}, p.noise(path)
	}
	return []string{"--data", p.Data, "--eval-rows", "1000"}, nil
}

// Random data have noiseRows samples, and their whole numbers are below noiseEnd.
const (
	noiseRows = 64
	noiseEnd  = 10
)

// noise writes a random array for each input of a pair's model.
func (p Pair) noise(path string) error {
	given := map[string]any{}
	for _, s := range p.Settings {
		name, value, _ := strings.Cut(s, "=")
		given[name] = value
	}
	m, err := model.Build(p.Model, given)
	if err != nil {
		return err
	}
	var tensors []safetensors.Named
	var values bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for _, in := range m.Inputs {
		t := safetensors.Named{Name: in.Name, Entry: safetensors.Entry{DType: "F32", Shape: []int64{noiseRows}}}
		if in.DType == model.Int {
			t.DType = "I32"
		}
		for _, n := range in.Shape {
			t.Shape = append(t.Shape, int64(n))
		}
		tensors = append(tensors, t)
		for range noiseRows * in.Elements() {
			var v any = float32(random.NormFloat64())
			if in.DType == model.Int {
				v = random.Int32N(noiseEnd)
			}
			_ = binary.Write(&values, binary.LittleEndian, v) // writes to memory
		}
	}
	header, err := safetensors.Header(tensors, nil)
	if err != nil {
		return err
	}
	return document.WriteText(path, string(header)+values.String())
}

func (r *Runner) millrace(ctx context.Context, args []string) error {
	c := child.Command(ctx, r.Program, args...)
	var said bytes.Buffer
	c.Env, c.Stderr = r.Env, &said
	if err := c.Run(); err != nil {
		return fmt.Errorf("defaults: millrace %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return nil
}
