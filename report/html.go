package report

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"
)

//go:embed web/page.html web/study.html web/head.html web/style.css web/*.js
var web embed.FS

// modules are the page's ES modules in the order they are put into it: each imports
// only from those before it.
var modules = []string{"format.js", "theme.js", "model.js", "view.js", "paint.js", "inspect.js", "gestures.js",
	"curves.js", "timeline.js", "main.js"}

var page = template.Must(template.New("page.html").ParseFS(web, "web/page.html", "web/head.html"))

// HTML writes the report as ONE page that fetches nothing: styles, scripts and data are
// in it, and a content policy forbids the rest. Tables are plain HTML and are there
// without scripts too; timelines and curves are drawn from the data by the page.
func HTML(w io.Writer, in Inputs) error {
	in, err := in.filled()
	if err != nil {
		return err
	}
	style, err := web.ReadFile("web/style.css")
	if err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	script, err := bundle()
	if err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	// encoding/json escapes <, > and & in strings, so no name can end the script element.
	data, err := json.Marshal(pageDataOf(in))
	if err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	view := pageViewOf(in)
	view.Style = template.CSS(style)
	view.Script = template.JS(script)
	view.Data = template.JS(data)
	if err := page.Execute(w, view); err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	return nil
}

// importLine and exportWord are what binds the modules as files; in one script they
// share a scope, so the bundle leaves both out. Tests check that no two modules use the same
// name at top level.
var (
	importLine = regexp.MustCompile(`(?m)^import .*\n`)
	exportWord = regexp.MustCompile(`(?m)^export `)
)

func bundle() (string, error) {
	var b strings.Builder
	for _, name := range modules {
		src, err := web.ReadFile("web/" + name)
		if err != nil {
			return "", err
		}
		text := importLine.ReplaceAllString(string(src), "")
		b.WriteString(exportWord.ReplaceAllString(text, ""))
	}
	return b.String(), nil
}

// Asset is a file of the report's page, for pages that are drawn as it is: a module of its scripts, or its style.
func Asset(name string) ([]byte, error) { return web.ReadFile("web/" + name) }

// StepData is what the page's scripts draw steps from, as JSON: those of a plan, a simulated and a measured Timeline.
func StepData(in Inputs) ([]byte, error) {
	in, err := in.filled()
	if err != nil {
		return nil, err
	}
	in.Losses, in.Evaluations = nil, nil
	d := pageDataOf(in)
	d.Steps = stepCurve{} // what each took is no part of the drawing, and long
	return json.Marshal(d)
}
