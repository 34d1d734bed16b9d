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

// modules are the page's ES modules in the order in which they are inserted. Each imports only earlier ones.
var modules = []string{"format.js", "theme.js", "model.js", "view.js", "paint.js", "inspect.js", "gestures.js",
	"curves.js", "timeline.js", "main.js"}

var page = template.Must(template.New("page.html").ParseFS(web, "web/page.html", "web/head.html"))

// HTML writes the report as a single page that loads nothing: it contains styles, scripts and data, and a content
// policy forbids anything else. Tables are plain HTML and work without scripts. Scripts draw timelines and curves
// from the data.
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

// importLine and exportWord match the statements that connect the modules while these are separate files. In one script
// the modules share a scope, so both statements are removed. Tests check that no two modules use the same name at top
// level.
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

// Asset returns a file of the report's page, for similar pages: a module of its scripts, or its style.
func Asset(name string) ([]byte, error) { return web.ReadFile("web/" + name) }

// StepData returns, as JSON, the data from which the page's scripts draw steps. The steps are those of the simulated
// and of the measured Timeline. The plan says which stages a worker has.
func StepData(in Inputs) ([]byte, error) {
	in, err := in.filled()
	if err != nil {
		return nil, err
	}
	in.Losses, in.Evaluations = nil, nil
	d := pageDataOf(in)
	d.Steps = stepCurve{} // all steps' times would take much space, and are not drawn here
	return json.Marshal(d)
}

// Study is a page of tables and plots that compare methods.
type Study struct {
	Title, Subtitle string
	Facts           []Fact
	Sections        []StudySection
	Links           []StudyLink // files next to the page
}

// StudySection is a part of a study.
type StudySection struct {
	Title string
	Note  string
	Table *Table
	Plots []Plot
	Notes []string // text below the section
}

// StudyLink is a file next to the page.
type StudyLink struct{ File, What string }

var studyPage = template.Must(template.Must(plotPage.Clone()).ParseFS(web, "web/study.html", "web/head.html"))

// HTML writes the study as a single page that loads nothing and needs no script; it contains the plots.
func (s *Study) HTML(w io.Writer) error {
	style, err := web.ReadFile("web/style.css")
	if err != nil {
		return fmt.Errorf("report: study: %w", err)
	}
	theme, err := web.ReadFile("web/theme.js")
	if err != nil {
		return fmt.Errorf("report: study: %w", err)
	}
	type section struct {
		StudySection
		ID    string
		Grid  *gridTable
		Drawn []plotView
	}
	page := struct {
		*Study
		Style  template.CSS
		Script template.JS
		Parts  []section
	}{Study: s, Style: template.CSS(string(style) + plotStyle),
		Script: template.JS(exportWord.ReplaceAllString(string(theme), "") + "\nstartTheme();\n")}
	for i, part := range s.Sections {
		out := section{StudySection: part, ID: fmt.Sprintf("part%d", i)}
		if part.Table != nil {
			out.Grid = gridTableOf(part.Table)
		}
		for _, p := range part.Plots {
			v, err := p.view()
			if err != nil {
				return err
			}
			out.Drawn = append(out.Drawn, v)
		}
		page.Parts = append(page.Parts, out)
	}
	if err := studyPage.ExecuteTemplate(w, "study.html", page); err != nil {
		return fmt.Errorf("report: writing the study: %w", err)
	}
	return nil
}

// Markdown writes the study's tables for a document, with the notes of their sections.
func (s *Study) Markdown(w io.Writer) error {
	var b strings.Builder
	for i, part := range s.Sections {
		if part.Table == nil {
			continue
		}
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s\n\n", strings.TrimSpace(part.Title+". "+part.Note))
		if err := part.Table.Markdown(&b); err != nil {
			return err
		}
		if len(part.Notes) > 0 {
			b.WriteString("\n")
		}
		for _, n := range part.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
