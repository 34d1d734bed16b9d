package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
)

// TestStories runs the stories in testdata: what a plan file says, and which files are refused.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

// storyWorld holds the story's plan file as decoded JSON. Each plan command replaces it.
type storyWorld struct{ file map[string]any }

// Do implements storytest.World.
//
//	plan            reads a plan file; prints its summary, its stages and its batch
//	with            replaces fields of the last file, then reads and prints it in the same way
//	for model=M id=ID layers=N    checks whether the plan was made for this model
func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "plan":
		w.file = map[string]any{}
		return told(d.Input, json.Unmarshal([]byte(d.Input), &w.file))
	case "with":
		var change, changed map[string]any
		if err := json.Unmarshal([]byte(d.Input), &change); err != nil {
			return "", err
		}
		text, err := json.Marshal(w.file)
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(text, &changed); err != nil {
			return "", err
		}
		for name, value := range change {
			changed[name] = value
		}
		text, err = json.Marshal(changed)
		return told(string(text), err)
	case "for":
		var model, id string
		var layers int
		d.ScanArgs(t, "model", &model)
		d.ScanArgs(t, "id", &id)
		d.ScanArgs(t, "layers", &layers)
		text, err := json.Marshal(w.file)
		if err != nil {
			return "", err
		}
		p, err := Decode(strings.NewReader(string(text)))
		if err != nil {
			return "", err
		}
		if err := p.Fits(model, id, layers); err != nil {
			return "", err
		}
		return "it fits\n", nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// told decodes a plan and describes it.
func told(text string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	p, err := Decode(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.Summary())
	for i, s := range p.Stages {
		fmt.Fprintf(&b, "stage %d: layers %d to %d on devices %v\n", i, s.FirstLayer, s.LastLayer, s.Devices)
	}
	fmt.Fprintf(&b, "a batch of %d on devices %v, computed in slices of %v\n", p.Batch(), p.Devices(), p.Sizes())
	return b.String(), nil
}
