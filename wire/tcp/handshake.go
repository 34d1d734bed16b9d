package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Service is the purpose of a connection.
type Service uint8

// The services.
const (
	frames  Service = iota + 1 // frames of a directed pair of workers
	Control                    // messages between a process and the leader, beginning with the rendezvous
	Files                      // for reading files on another process's host
)

func (s Service) String() string {
	switch s {
	case frames:
		return "frames"
	case Control:
		return "control"
	case Files:
		return "files"
	}
	return fmt.Sprintf("service %d", uint8(s))
}

const (
	version    = 1
	helloBytes = 88
	headBytes  = 8 // bytes of an answer's head
	nonceBytes = 32
	mostText   = 255
	mostStream = 16
)

// hello is the first thing that a dialler sends. It is "MWTC", version (16 bits), service (8 bits), 0, and then the
// fields below in their order, without service.
type hello struct {
	service         Service
	from, to        uint32 // numbers of workers, or of processes
	session         uint32
	stream, streams uint16
	run             [sha256.Size]byte
	nonce           [nonceBytes]byte
}

// The kinds of answers. An answer is "MWTA", kind (8 bits), code (8 bits), length (16 bits), and that many bytes.
const (
	challenge = iota + 1 // an answer with random bytes
	welcome              // an answer with a proof
	refusal              // an answer with a text
)

// The codes of refusals.
const (
	notOne  = iota + 1 // the other end does not know the token, or speaks another protocol
	notHere            // the requested worker, process or stream is not available here
	over               // the requested session is over
	another            // the dialler belongs to another run, or to another start of this run
)

// refused is an error for a refused connection, at the listener or at the dialler.
type refused struct {
	code byte
	text string
}

func (r *refused) Error() string { return r.text }

func (h *hello) encode() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, helloBytes), "MWTC"...)
	b = le.AppendUint16(b, version)
	b = append(b, byte(h.service), 0)
	b = le.AppendUint32(b, h.from)
	b = le.AppendUint32(b, h.to)
	b = le.AppendUint32(b, h.session)
	b = le.AppendUint16(b, h.stream)
	b = le.AppendUint16(b, h.streams)
	b = append(b, h.run[:]...)
	return append(b, h.nonce[:]...)
}

// readHello reads what encode wrote.
func readHello(b []byte) (hello, error) {
	var h hello
	le := binary.LittleEndian
	switch {
	case string(b[:4]) != "MWTC":
		return h, fmt.Errorf("it begins with %q, and is no hello of millrace", b[:4])
	case le.Uint16(b[4:]) != version:
		return h, fmt.Errorf("it speaks version %d; this is version %d", le.Uint16(b[4:]), version)
	case b[7] != 0:
		return h, errors.New("its hello is damaged")
	}
	h = hello{service: Service(b[6]), from: le.Uint32(b[8:]), to: le.Uint32(b[12:]), session: le.Uint32(b[16:]),
		stream: le.Uint16(b[20:]), streams: le.Uint16(b[22:])}
	copy(h.run[:], b[24:])
	copy(h.nonce[:], b[24+len(h.run):])
	switch bound := h.streams <= mostStream && h.stream < h.streams; {
	case h.service < frames || h.service > Files:
		return h, fmt.Errorf("it asks for %v, which there is not", h.service)
	case !bound:
		return h, fmt.Errorf("it is stream %d of %d; there are 1 to %d", h.stream, h.streams, mostStream)
	case h.from > 1<<31-1 || h.to > 1<<31-1:
		return h, fmt.Errorf("it is from number %d, to number %d", h.from, h.to)
	}
	return h, nil
}

func answer(to io.Writer, kind, code byte, body []byte) error {
	b := append([]byte("MWTA"), kind, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
	_, err := to.Write(append(b, body...))
	return err
}

// hear reads an answer of the given kind. It returns a refusal as an error.
func hear(from io.Reader, kind byte, size int) ([]byte, error) {
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	said, code, length := head[4], head[5], int(binary.LittleEndian.Uint16(head[6:]))
	if string(head[:4]) != "MWTA" || said != refusal && (said != kind || length != size) || length > mostText {
		return nil, &refused{notOne, fmt.Sprintf("it answers %x, and does not speak as millrace does", head)}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, err
	}
	if said == refusal {
		return nil, &refused{code, fmt.Sprintf("it refuses: %q", body)}
	}
	return body, nil
}

// proof returns bytes that only a holder of the token can compute: an HMAC over the role, the TLS channel, the hello
// (with the dialler's random bytes), and the listener's random bytes.
func (c Config) proof(who string, channel, hello, nonce []byte) []byte {
	m := hmac.New(sha256.New, c.Token)
	for _, part := range [][]byte{[]byte(who), channel, hello, nonce} {
		m.Write(part)
	}
	return m.Sum(nil)
}

// The role in a proof. Roles differ, so that nobody can send back a proof that it received.
const (
	dialler  = "millrace tcp 1 dialler\x00"
	listener = "millrace tcp 1 listener\x00"
	lender   = "millrace tcp 1 lender\x00" // this proof stays in the lender's memory and is never sent
)

// errToken is the refusal of a peer whose proof of the token is wrong.
var errToken = &refused{notOne, "its token is not this run's: give every process of the run the same " +
	"MILLRACE_TOKEN, of 16 to 4096 bytes"}

// proofs holds what a listener has computed once the dialler has proved itself.
type proofs struct{ listener, lender []byte }

// receive does the listener's side of the handshake, except for the last answer: welcome or refusal.
func (e *Endpoint) receive(raw net.Conn) (h hello, c net.Conn, p proofs, err error) {
	_ = raw.SetDeadline(time.Now().Add(e.patience(e.limits.handshake)))
	c, channel, err := e.tls.listens(raw)
	if err != nil {
		return h, raw, p, err
	}
	text := make([]byte, helloBytes)
	if _, err = io.ReadFull(c, text); err != nil {
		return h, c, p, fmt.Errorf("it says no hello: %w", err)
	}
	if h, err = readHello(text); err != nil {
		return h, c, p, &refused{notOne, err.Error()}
	}
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // it never fails
	if err = answer(c, challenge, 0, nonce); err != nil {
		return h, c, p, err
	}
	given := make([]byte, sha256.Size)
	if _, err = io.ReadFull(c, given); err != nil {
		return h, c, p, fmt.Errorf("it proves nothing: %w", err)
	}
	if !hmac.Equal(given, e.config.proof(dialler, channel, text, nonce)) {
		return h, c, p, errToken
	}
	p = proofs{e.config.proof(listener, channel, text, nonce), e.config.proof(lender, channel, text, nonce)}
	return h, c, p, nil
}

// refuse sends a dialler the reason, cut to mostText bytes.
func refuse(c net.Conn, r *refused) {
	_ = answer(c, refusal, r.code, []byte(r.text[:min(len(r.text), mostText)]))
}

// greet does the dialler's side of the handshake. `lends` is the proof that this process must keep in its memory as
// long as it lends memory.
func (e *Endpoint) greet(raw net.Conn, h hello) (c net.Conn, lends []byte, err error) {
	_ = raw.SetDeadline(time.Now().Add(e.patience(e.limits.handshake)))
	c, channel, err := e.tls.dials(raw)
	if err != nil {
		return nil, nil, err
	}
	_, _ = rand.Read(h.nonce[:])
	text := h.encode()
	if _, err := c.Write(text); err != nil {
		return nil, nil, err
	}
	nonce, err := hear(c, challenge, nonceBytes)
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.Write(e.config.proof(dialler, channel, text, nonce)); err != nil {
		return nil, nil, err
	}
	proof, err := hear(c, welcome, sha256.Size)
	if err != nil {
		return nil, nil, err
	}
	if !hmac.Equal(proof, e.config.proof(listener, channel, text, nonce)) {
		return nil, nil, &refused{notOne, "it does not know this run's token"}
	}
	_ = raw.SetDeadline(time.Time{})
	return c, e.config.proof(lender, channel, text, nonce), nil
}
