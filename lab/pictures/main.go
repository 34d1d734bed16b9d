// Pictures makes the documentation's pictures by running the commands that they show.
//
// In: the built millrace, run in the repository's folder. Out: PNG files in docs, of pages in a headless Chromium at a
// fixed size. Model, data, plan and seed of the trainings are fixed, so a new picture differs only in this machine's
// times. With -gallery it writes docs/schedules.md with a drawing of every schedule, and docs/cli.md; these are the
// same on any machine. Refused: a machine without Chromium; a schedule without an inventor in the gallery. `make
// pictures` and `make gallery` run it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/document"
)

// picture is a picture of a page that a command writes.
type picture struct {
	file    string // path below the folder docs
	command string // of millrace
	page    string
	view    browser.View
}

var pictures = []picture{{
	file: "report.png",
	command: "train --model convnet --data fashion-mnist --batch 128 --steps 60 --workers 2 --stages 2 " +
		"--schedule 1f1b --micro-batches 8 --seed 1 --out runs/convnet --overwrite",
	page: "runs/convnet/report.html",
	view: browser.View{Width: 1280, Height: 1432},
}}

func main() {
	millrace := flag.String("millrace", "bin/millrace", "the program")
	docs := flag.String("docs", "docs", "folder that the pictures go to")
	schedules := flag.Bool("gallery", false, "make the pages of schedules and verbs; no Chromium, no training")
	flag.Parse()
	draw := take
	if *schedules {
		draw = gallery
	}
	if err := draw(*millrace, *docs); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func take(millrace, docs string) error {
	b, err := browser.Start()
	if err != nil {
		return err
	}
	defer b.Close()
	for _, p := range pictures {
		fmt.Println("millrace", p.command)
		c := exec.Command(millrace, strings.Fields(p.command)...)
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", p.command, err, said)
		}
		if err := p.take(b, filepath.Join(docs, p.file)); err != nil {
			return err
		}
	}
	return nil
}

// take opens the page and writes a picture of it.
func (p *picture) take(b *browser.Browser, path string) error {
	page, err := b.Open(p.page, p.view)
	if err != nil {
		return err
	}
	defer page.Close()
	png, err := page.Picture(false)
	if err != nil {
		return err
	}
	if faults := page.Faults(); len(faults) > 0 {
		return fmt.Errorf("%s: %s", p.page, strings.Join(faults, "; "))
	}
	fmt.Println(path)
	return document.WriteText(path, string(png))
}
