// Package papers writes docs/papers.md: all tables, figures and mechanisms of the four papers.
//
// In: figures.yaml, mechanisms.yaml and the results of experiments in lab/results/papers. Out: the page and its
// plots. Refused: experiments that no figure names, figures whose experiments left no results, and results of
// unknown experiments.
package papers

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/strictyaml"
	_ "github.com/millrace-ml/millrace/lab/reproduce" // registers its experiments
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

//go:embed figures.yaml mechanisms.yaml
var lists embed.FS

// Figure is a table, a figure or a statement of a paper.
type Figure struct {
	Paper       string   `yaml:"paper"`
	Name        string   `yaml:"name"`
	Title       string   `yaml:"title"`
	Experiments []string `yaml:"experiments"`
	Draws       string   `yaml:"draws"`  // a command that draws the figure
	Knows       string   `yaml:"knows"`  // where millrace keeps the values
	Trains      string   `yaml:"trains"` // a command with a similar training
	Why         string   `yaml:"why"`
}

// Mechanism is a part of a paper's system.
type Mechanism struct {
	Paper   string   `yaml:"paper"`
	Name    string   `yaml:"name"`
	Section string   `yaml:"section"`
	How     string   `yaml:"how"`
	State   string   `yaml:"state"` // works, partly or absent
	Missing string   `yaml:"missing"`
	Tests   []string `yaml:"tests"` // each is a folder, a dot and the name of a test
}

func read[T any](name string) (all []T, err error) {
	text, err := lists.ReadFile(name)
	if err == nil {
		err = strictyaml.Decode(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("lab/papers/%s: %w", name, err)
	}
	return all, nil
}

// Figures lists the tables and figures of the four papers.
func Figures() ([]Figure, error) { return read[Figure]("figures.yaml") }

// Mechanisms lists the mechanisms of the four papers.
func Mechanisms() ([]Mechanism, error) { return read[Mechanism]("mechanisms.yaml") }

// Result is the result of an experiment.
type Result struct {
	table.Table
	Agreement table.Agreement `json:"agreement"`
	Verdict   table.Verdict   `json:"verdict"`
}

// Keep writes the result of an experiment to a folder, as NAME.json.
func Keep(folder string, t *table.Table) error {
	path := filepath.Join(folder, t.Name+".json")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return document.WriteJSON(path, Result{*t, t.Agreement(), t.Verdict()})
}

// results reads the results of experiments from a folder, by name.
func results(folder string) (map[string]*table.Table, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	all := map[string]*table.Table{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder, f.Name()), err)
		}
		all[strings.TrimSuffix(f.Name(), ".json")] = &r.Table
	}
	return all, nil
}

// covered refuses experiments that no figure names, unknown experiments, and figures without content.
func covered(figures []Figure, experiments []string) error {
	var faults []error
	named := map[string]bool{}
	for _, f := range figures {
		for _, name := range f.Experiments {
			named[name] = true
			if !slices.Contains(experiments, name) {
				faults = append(faults, fmt.Errorf("%s, %s: there is no experiment %q", f.Paper, f.Name, name))
			}
		}
		if len(f.Experiments) == 0 && f.Draws == "" && f.Knows == "" && f.Trains == "" {
			faults = append(faults, fmt.Errorf("%s, %s has no experiment, and nothing says where it is", f.Paper, f.Name))
		}
	}
	for _, name := range experiments {
		if !named[name] {
			faults = append(faults, fmt.Errorf("experiment %q is of no table or figure in lab/papers/figures.yaml", name))
		}
	}
	return errors.Join(faults...)
}

// The inputs and the page, as paths from the root of the repository.
const (
	ResultsFolder = "lab/results/papers"
	PagePath      = "docs/papers.md"
	plotsFolder   = "docs/papers"
)

// Pages returns the page and its plots, by their paths from the root. They are made from the results below the root.
func Pages(root string) (map[string][]byte, error) {
	figures, err := Figures()
	if err != nil {
		return nil, err
	}
	mechanisms, err := Mechanisms()
	if err != nil {
		return nil, err
	}
	found, err := results(filepath.Join(root, ResultsFolder))
	if err != nil {
		return nil, err
	}
	var experiments []string
	for _, e := range table.Experiments() {
		if !e.OfThePapers() {
			continue
		}
		experiments = append(experiments, e.Name)
		if found[e.Name] == nil {
			return nil, fmt.Errorf("%s/%s.json is not there: make papers, or millrace-lab reproduce %s --results %s",
				ResultsFolder, e.Name, e.Name, ResultsFolder)
		}
	}
	for name := range found {
		if !slices.Contains(experiments, name) {
			return nil, fmt.Errorf("%s/%s.json is of no experiment", ResultsFolder, name)
		}
	}
	if err := covered(figures, experiments); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, t := range found {
		drawn, err := plots(t)
		if err != nil {
			return nil, fmt.Errorf("plot of %s: %w", name, err)
		}
		for i, svg := range drawn {
			files[plotPath(name, i)] = svg
		}
	}
	p := page{figures: figures, mechanisms: mechanisms, results: found, files: files}
	files[PagePath] = p.write()
	return files, nil
}

// plotPath returns the path of the i-th plot of an experiment.
func plotPath(name string, i int) string {
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i+1)
	}
	return plotsFolder + "/" + name + ".svg"
}

// Write writes the page and its plots, and removes other files from the folder of plots.
func Write(root string) error {
	files, err := Pages(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, plotsFolder), 0o755); err != nil {
		return err
	}
	for path, text := range files {
		if err := document.WriteText(filepath.Join(root, path), string(text)); err != nil {
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(root, plotsFolder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if _, made := files[plotsFolder+"/"+d.Name()]; !made {
			return os.Remove(path)
		}
		return nil
	})
}
