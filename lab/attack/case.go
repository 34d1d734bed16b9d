package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// input is one bad input of the table. It has files to create, preparing commands, the command under attack, its right
// exit code, and phrases of its message.
//
// Inputs follow each other in a text file, with # before comments:
//
//	[a word in front of the model's layers]     the name
//	model.yaml:                                 a file, its lines four spaces further in
//	    name: x
//	"odd name" = repeat "[" 100000              a file that makers.go makes
//	slow                                        the short form leaves it out
//	$ schedule --text                           a command that must succeed
//	> plan --model model.yaml --batch 4         the command that is attacked
//	2: layers | give one                        its exit code, and phrases that stderr must contain
//
// In a command, a word that begins with @ names a fixture, and @P means the settings of a small training. NAME=VALUE
// before a command sets its environment. If a command must succeed, its stdout is also searched for the phrases.
type input struct {
	name    string
	where   string // file and line
	files   []file
	prepare [][]string
	command []string
	code    int
	says    []string
	slow    bool // the input takes at least some seconds
}

// file is a file to create: its text, or the command that makes it.
type file struct {
	path  string
	text  []byte
	maker []string
}

// readInputs reads all files of the table.
func readInputs(table fs.FS) ([]input, error) {
	names, err := fs.Glob(table, "*.txt")
	if err != nil {
		return nil, err
	}
	var all []input
	for _, name := range names {
		text, err := fs.ReadFile(table, name)
		if err != nil {
			return nil, err
		}
		some, err := parseInputs(name, text)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	seen := map[string]string{}
	for _, in := range all {
		if at, twice := seen[in.name]; twice {
			return nil, fmt.Errorf("%s: %q is a name already, at %s", in.where, in.name, at)
		}
		seen[in.name] = in.where
	}
	return all, nil
}

func parseInputs(name string, text []byte) ([]input, error) {
	var all []input
	var open *file // the file whose lines are being read
	scan := bufio.NewScanner(bytes.NewReader(text))
	for line := 1; scan.Scan(); line++ {
		s := scan.Text()
		where := fmt.Sprintf("%s:%d", name, line)
		if open != nil && strings.HasPrefix(s, "    ") {
			open.text = append(open.text, s[4:]+"\n"...)
			continue
		}
		open = nil
		if s == "" || s[0] == '#' {
			continue
		}
		if s[0] == '[' {
			if err := whole(all); err != nil {
				return nil, err
			}
			all = append(all, input{name: strings.TrimSuffix(s[1:], "]"), where: where, code: -1})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: %q is of no input; a line like [name] begins one", where, s)
		}
		in := &all[len(all)-1]
		laid := len(in.files)
		if err := in.read(s); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if len(in.files) > laid && in.files[laid].maker == nil {
			open = &in.files[laid]
		}
	}
	return all, whole(all)
}

// whole checks that the last input is complete.
func whole(all []input) error {
	if len(all) == 0 {
		return nil
	}
	in := all[len(all)-1]
	if in.command == nil || in.code < 0 {
		return fmt.Errorf("%s: %q has no command or no exit code", in.where, in.name)
	}
	if in.code != 0 && len(in.says) == 0 {
		return fmt.Errorf("%s: %q says nothing of its message", in.where, in.name)
	}
	return nil
}

// read reads one line of an input.
func (in *input) read(s string) error {
	switch {
	case s == "slow":
		in.slow = true
		return nil
	case strings.HasPrefix(s, "> "):
		words, err := split(s[2:])
		in.command = words
		return err
	case strings.HasPrefix(s, "$ "):
		words, err := split(s[2:])
		in.prepare = append(in.prepare, words)
		return err
	}
	if code, says, ok := strings.Cut(s, ": "); ok && in.command != nil {
		n, err := strconv.Atoi(code)
		if err != nil {
			return fmt.Errorf("%q is no exit code", code)
		}
		in.code = n
		for phrase := range strings.SplitSeq(says, " | ") {
			in.says = append(in.says, strings.TrimSpace(phrase))
		}
		return nil
	}
	if s == "0:" && in.command != nil {
		in.code = 0
		return nil
	}
	if name, maker, made := strings.Cut(s, " = "); made {
		words, err := split(maker)
		if err != nil {
			return err
		}
		return in.lay(name, words)
	}
	if name, isFile := strings.CutSuffix(s, ":"); isFile {
		return in.lay(name, nil)
	}
	return fmt.Errorf("%q is neither a file, a command nor an exit code with a phrase", s)
}

func (in *input) lay(name string, maker []string) error {
	words, err := split(name)
	if err != nil {
		return err
	}
	if len(words) != 1 || path.IsAbs(words[0]) {
		return fmt.Errorf("%q is no name of one file", name)
	}
	in.files = append(in.files, file{path: words[0], maker: maker})
	return nil
}

// split cuts a line into words. A word may have parts in single quotes, taken literally, and in double quotes, with
// Go's escapes.
func split(line string) ([]string, error) {
	var words []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		word := ""
		for line != "" && line[0] != ' ' {
			switch line[0] {
			case '\'':
				inside, rest, ok := strings.Cut(line[1:], "'")
				if !ok {
					return nil, fmt.Errorf("a ' without its other half in %q", line)
				}
				word, line = word+inside, rest
			case '"':
				quoted, err := strconv.QuotedPrefix(line)
				if err != nil {
					return nil, fmt.Errorf("no quoted word begins %q: %w", line, err)
				}
				inside, err := strconv.Unquote(quoted)
				if err != nil {
					return nil, err
				}
				word, line = word+inside, line[len(quoted):]
			default:
				end := strings.IndexAny(line, ` '"`)
				if end < 0 {
					end = len(line)
				}
				word, line = word+line[:end], line[end:]
			}
		}
		words = append(words, word)
	}
	return words, nil
}
