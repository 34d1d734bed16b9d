package report

import (
	"errors"
	"io"
)

// HTML writes the report as one page that needs nothing else.
func HTML(w io.Writer, in Inputs) error { return errors.New("report: html: not built in yet") }
