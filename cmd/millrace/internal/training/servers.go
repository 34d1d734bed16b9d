package training

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/serving"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/report/live"
)

// servers serve the metrics and pages of a run while it lasts. A server that was not asked for is nil.
type servers struct {
	metrics, live *serving.Server
	pages         *live.Shelf
}

// listen listens at the addresses that a job names. Pages are served from now on, although the run has not begun.
func listen(j *job.Job) (s *servers, err error) {
	s = &servers{}
	if j.Output.TokenFile != "" && j.Output.Metrics == "" && j.Output.Live == "" {
		return s, cli.BadInput(fmt.Errorf("--token-file %s: it is for --metrics and --live, of which neither is given",
			j.Output.TokenFile))
	}
	if j.Output.Metrics != "" {
		s.metrics, err = serving.Listen("metrics", "--metrics", j.Output.Metrics, j.Output.TokenFile)
	}
	if err != nil || j.Output.Live == "" {
		return s, err
	}
	if s.live, err = serving.Listen("pages", "--live", j.Output.Live, j.Output.TokenFile); err != nil {
		return s, errors.Join(err, s.close())
	}
	if s.pages, err = live.New(nil, j.Output.Folder); err != nil {
		return s, errors.Join(err, s.close())
	}
	s.live.Serve(s.pages.Handler(), func(err error) { slog.Error("pages of the run", "error", err) })
	return s, nil
}

// say prints where the pages are: in the first line of output for people, or in the log if the output is JSON.
func (s *servers) say(out io.Writer, asJSON bool) {
	switch {
	case s.live == nil:
	case asJSON:
		cli.Say("live "+s.live.URL(), "live", s.live.URL())
	default:
		fmt.Fprintf(out, "live %s\n", s.live.URL())
	}
}

// scraped serves metrics.
func (s *servers) scraped(h http.Handler) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", h)
	s.metrics.Serve(mux, func(err error) { slog.Error("metrics server", "error", err) })
}

// watched reports whether the pages are being watched.
func (s *servers) watched() bool { return s.pages != nil && s.pages.Watched() }

// lastLook is how long watched pages are served after the end of a run.
const lastLook = time.Second

// linger gives watched pages time to load the end of the run.
func (s *servers) linger() {
	if s.watched() {
		time.Sleep(lastLook)
	}
}

func (s *servers) close() (err error) {
	if s.metrics != nil {
		err = errors.Join(err, s.metrics.Close())
	}
	if s.pages != nil {
		err = errors.Join(err, s.pages.Close())
	}
	if s.live != nil {
		err = errors.Join(err, s.live.Close())
	}
	return err
}
