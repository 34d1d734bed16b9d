package serving

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"html/template"
	"io"
	"net"
	"net/http"
	"strings"
)

// guarded returns a handler that passes only permitted requests to h.
func (s *Server) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.want == nil && !namesThisMachine(r.Host):
			s.refuse(r.RemoteAddr, "it names another host")
			w.Header().Set("Connection", "close")
			http.Error(w, "this is for requests that name this machine: http://localhost:PORT or http://127.0.0.1:PORT",
				http.StatusMisdirectedRequest)
		case s.want == nil || s.bears(r):
			h.ServeHTTP(w, r)
		case r.Method == http.MethodPost && r.URL.Path == loginPath:
			s.login(w, r)
		default:
			s.refuse(r.RemoteAddr, "it does not bear the token")
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close")
			if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
				askForToken(w, http.StatusUnauthorized, r.URL.RequestURI(), "")
				return
			}
			http.Error(w, "this needs the token of --token-file: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		}
	})
}

// namesThisMachine reports whether a request's Host is a name that always means this machine.
func namesThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return isHere(strings.Trim(host, "[]"))
}

// bears reports whether a request has the token, or the cookie that a browser got for it. The comparison takes
// constant time.
func (s *Server) bears(r *http.Request) bool {
	if s.isToken(r.Header.Get("Authorization")) {
		return true
	}
	name, value := s.cookie()
	given, err := r.Cookie(name)
	return err == nil && subtle.ConstantTimeCompare([]byte(given.Value), []byte(value)) == 1
}

func (s *Server) isToken(header string) bool {
	got := sha256.Sum256([]byte(header))
	return subtle.ConstantTimeCompare(got[:], s.want[:]) == 1
}

// cookie returns the cookie that a browser gets for the token. Its value is derived from the token and does not
// reveal it. Its name is derived too, because browsers share cookies among the ports of a host.
func (s *Server) cookie() (name, value string) {
	of := func(what string) string {
		h := hmac.New(sha256.New, s.want[:])
		_, _ = io.WriteString(h, what)
		return hex.EncodeToString(h.Sum(nil))
	}
	return "millrace-" + of("name")[:12], of("value")
}

// loginPath is the path that the token form is sent to.
const loginPath = "/login"

// mostForm is the maximal size of a form, in bytes.
const mostForm = 2 * mostToken

// login checks the token in a form, sets the cookie, and redirects the browser to the page it came from.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	token, back := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("back")
	if !isHereToo(back) {
		back = "/"
	}
	if !s.isToken("Bearer " + token) {
		s.refuse(r.RemoteAddr, "its token is another")
		askForToken(w, http.StatusUnauthorized, back, "That is not the token.")
		return
	}
	name, value := s.cookie()
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// isHereToo reports whether an address leads to a page of this server. Some browsers leave out tabs and read a
// backslash as a slash, so both are refused.
func isHereToo(back string) bool {
	strange := func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }
	return strings.HasPrefix(back, "/") && !strings.HasPrefix(back, "//") && !strings.ContainsFunc(back, strange)
}

// askForToken answers with a form for the token.
func askForToken(w http.ResponseWriter, code int, back, wrong string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "+
		"frame-ancestors 'none'; base-uri 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(code)
	_ = loginPage.Execute(w, map[string]string{"Back": back, "Wrong": wrong}) // an error means that the client has gone
}

var loginPage = template.Must(template.New("login").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Token – millrace</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 26rem; margin: 12vh auto; padding: 0 16px; display: grid; gap: 12px; }
h1 { font-size: 1.3rem; margin: 0; } p { margin: 0; }
input, button { font: inherit; padding: 8px 10px; width: 100%; box-sizing: border-box; }
label { display: grid; gap: 4px; }
</style>
</head>
<body>
<main>
<h1>millrace</h1>
<form method="post" action="/login">
<p><label>Token of --token-file <input name="token" type="password" autocomplete="current-password" required autofocus>
</label></p>
<input type="hidden" name="back" value="{{.Back}}">
{{with .Wrong}}<p role="alert">{{.}}</p>{{end}}
<p style="margin-top: 12px"><button>Show the run</button></p>
</form>
</main>
</body>
</html>
`))
