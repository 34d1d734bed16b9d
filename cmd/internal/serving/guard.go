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

// guarded lets only those requests through that may ask.
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

// namesThisMachine says whether the Host of a request is a name that no other machine's name can come to mean.
func namesThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return isHere(strings.Trim(host, "[]"))
}

// bears says whether a request has the token, or the cookie of a browser that had. How long that takes says nothing of
// either.
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

// cookie is what a browser keeps once it was given the token. It is derived from the token, and does not reveal it. So
// is its name, because browsers do not tell the ports of a host apart.
func (s *Server) cookie() (name, value string) {
	of := func(what string) string {
		h := hmac.New(sha256.New, s.want[:])
		_, _ = io.WriteString(h, what)
		return hex.EncodeToString(h.Sum(nil))
	}
	return "millrace-" + of("name")[:12], of("value")
}

// loginPath is where the form is sent to.
const loginPath = "/login"

// mostForm is how many bytes of a form are read.
const mostForm = 2 * mostToken

// login gives a browser the cookie for the token in a form, and sends it back to where it was.
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

// isHereToo says whether an address of a page leads to no other site, however a browser reads it: some leave out
// tabs and read a backslash as a slash.
func isHereToo(back string) bool {
	strange := func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }
	return strings.HasPrefix(back, "/") && !strings.HasPrefix(back, "//") && !strings.ContainsFunc(back, strange)
}

// askForToken answers with a form.
func askForToken(w http.ResponseWriter, code int, back, wrong string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "+
		"frame-ancestors 'none'; base-uri 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(code)
	_ = loginPage.Execute(w, map[string]string{"Back": back, "Wrong": wrong}) // who does not hear it has gone
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
