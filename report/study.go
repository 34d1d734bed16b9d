package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

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
