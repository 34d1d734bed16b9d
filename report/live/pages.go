package live

import (
	"embed"
	"net/http"
	"strings"

	"github.com/millrace-ml/millrace/report"
)

//go:embed web
var web embed.FS

// drawnAs lists the files of the report's page that the pages of runs also use.
var drawnAs = []string{"style.css", "theme.js", "format.js", "model.js", "view.js", "paint.js", "inspect.js",
	"gestures.js", "curves.js", "timeline.js"}

// policy allows a page only its own scripts, style and stream.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the pages and their files and streams.
func (s *Shelf) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", asset("text/html; charset=utf-8", own("page.html")))
	mux.HandleFunc("GET /stream", s.stream)
	for _, name := range drawnAs {
		mux.HandleFunc("GET /"+name, asset(typeOf(name), func() ([]byte, error) { return report.Asset(name) }))
	}
	files, err := web.ReadDir("web")
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	for _, f := range files {
		mux.HandleFunc("GET /"+f.Name(), asset(typeOf(f.Name()), own(f.Name())))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		mux.ServeHTTP(w, r)
	})
}

func own(name string) func() ([]byte, error) {
	return func() ([]byte, error) { return web.ReadFile("web/" + name) }
}

func typeOf(name string) string {
	switch {
	case strings.HasSuffix(name, ".css"):
		return "text/css; charset=utf-8"
	case strings.HasSuffix(name, ".html"):
		return "text/html; charset=utf-8"
	}
	return "text/javascript; charset=utf-8"
}

// asset serves an embedded file.
func asset(kind string, read func() ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := read()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache") // the next build may have another version
		_, _ = w.Write(text)                        // an error means that the client has gone
	}
}
