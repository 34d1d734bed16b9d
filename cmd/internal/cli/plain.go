package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// inWords returns the text of an error for users. It replaces the terms of Go and of system calls with plain words.
func inWords(err error) string {
	text := err.Error()
	for _, e := range within(err) {
		if plain := plain(e); plain != "" {
			text = strings.ReplaceAll(text, e.Error(), plain)
		}
	}
	return terminal.Singular(text)
}

// within returns an error and all errors that it wraps.
func within(err error) []error {
	all := []error{err}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if next := e.Unwrap(); next != nil {
			all = append(all, within(next)...)
		}
	case interface{ Unwrap() []error }:
		for _, next := range e.Unwrap() {
			all = append(all, within(next)...)
		}
	}
	return all
}

// plain returns a text for users in place of an error of Go's libraries; "" if the error is not listed here.
func plain(err error) string {
	switch e := err.(type) {
	case *strconv.NumError:
		if errors.Is(e.Err, strconv.ErrRange) {
			return strconv.Quote(e.Num) + " is beyond what a number may be"
		}
		return strconv.Quote(e.Num) + " is no number"
	case *json.UnmarshalTypeError:
		return cmp.Or(e.Field, "it") + " is a JSON " + e.Value + ", which it cannot be"
	case *fs.PathError:
		path := e.Path
		if path == "" {
			path = `""`
		}
		switch {
		case errors.Is(e.Err, syscall.ENOENT):
			return "there is no " + path
		case errors.Is(e.Err, syscall.ENOTDIR):
			return "there is no " + path + ": a part of that path is a file, no folder"
		case errors.Is(e.Err, syscall.EISDIR):
			return path + " is a folder"
		case errors.Is(e.Err, syscall.EROFS):
			return path + " is on a disk that can only be read"
		case errors.Is(e.Err, syscall.EACCES), errors.Is(e.Err, syscall.EPERM):
			return "this user may not use " + path
		case errors.Is(e.Err, syscall.ENAMETOOLONG):
			return "the name is too long: " + path
		}
	case syscall.Errno: // the text around this error names the file
		switch {
		case e == syscall.ENOENT:
			return "there is no such file"
		case errors.Is(e, fs.ErrPermission):
			return "this user may not use it"
		}
	}
	return ""
}
