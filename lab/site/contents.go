package site

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Group holds the pages under one heading of the contents.
type Group struct {
	Title string
	Pages []Page
}

// Page is one Markdown file of the repository.
type Page struct {
	Title string
	File  string // path in the repository, with slashes
}

// Contents lists every page of the site in reading order.
var Contents = []Group{
	{"Start", []Page{{"millrace", "README.md"}}},
	{"Train", []Page{
		{"Models", "docs/models.md"}, {"PyTorch models", "docs/pytorch.md"}, {"Data", "docs/data.md"},
		{"Runs", "docs/runs.md"}, {"Many hosts", "docs/hosts.md"}, {"Slow links", "docs/slow-links.md"},
	}},
	{"Plan and predict", []Page{
		{"Clusters", "docs/clusters.md"}, {"Schedules", "docs/schedules.md"}, {"Weight policies", "docs/weights.md"},
		{"Predictions", "docs/predictions.md"}, {"Programs", "docs/programs.md"},
	}},
	{"Look", []Page{{"Reading a report", "docs/report.md"}, {"Watching runs", "docs/live.md"}}},
	{"Look up", []Page{
		{"Commands", "docs/cli.md"}, {"File formats", "docs/formats.md"}, {"Limits", "docs/limits.md"},
		{"Troubleshooting", "docs/troubleshooting.md"}, {"Changes", "CHANGELOG.md"},
	}},
	{"Behind it", []Page{
		{"Architecture", "ARCHITECTURE.md"}, {"Adding to millrace", "docs/extending.md"},
		{"The four papers", "docs/papers.md"}, {"Benchmarks", "BENCHMARKS.md"},
	}},
}

// address returns the path of a page on the site.
func (p Page) address() string {
	if p.File == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(p.File, ".md") + ".html"
}

func pages(contents []Group) []Page {
	var all []Page
	for _, g := range contents {
		all = append(all, g.Pages...)
	}
	return all
}

// unlisted returns an error text for each page of docs/ that is not in the contents.
func unlisted(dir string, contents []Group) ([]string, error) {
	there, err := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, path := range there {
		name := "docs/" + filepath.Base(path)
		listed := slices.ContainsFunc(pages(contents), func(p Page) bool { return p.File == name })
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && !listed {
			out = append(out, fmt.Sprintf("%s: the contents of lab/site do not list it", name))
		}
	}
	return out, nil
}
