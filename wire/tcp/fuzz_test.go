package tcp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// framesOf returns the bytes with which a stream sends frames of an edge.
func framesOf(edge uint32, all ...[]byte) []byte {
	var text []byte
	for n, data := range all {
		c := chunk{tag: wire.TagOf(1, edge, uint32(n)), total: int64(len(data))}
		for ; int64(c.index) < chunksOf(c.total); c.index++ {
			text = appendPrefix(text, kindChunk, c)
			begin, end := c.span()
			text = append(text, data[begin:end]...)
		}
	}
	return text
}

// mended corrects the magic and the checksums in a stream's prefixes, since a reader refuses wrong ones at once.
func mended(text []byte) []byte {
	text = bytes.Clone(text)
	for at := 0; len(text)-at >= prefixBytes; {
		p := text[at:][:prefixBytes]
		end := prefixBytes - crc32.Size
		copy(p, "MW")
		p[3] = 0
		if p[2] != kindLent {
			binary.LittleEndian.PutUint32(p[end-4:], 0)
		}
		binary.LittleEndian.PutUint32(p[end:], crc32.Checksum(p[:end], castagnoli))
		at += prefixBytes
		if kind, c, err := readPrefix(p); err == nil && kind == kindChunk {
			begin, end := c.span()
			at += int(end - begin)
		}
	}
	return text
}

// loan is memory of this process that a fuzzed stream lends.
var loan = struct {
	proof memory.Proof
	data  [chunkBytes + 10]byte
}{proof: memory.Proof{1, 2, 3}}

// FuzzFrames: whatever a member sends, every receive ends once, and only posted buffers are written.
func FuzzFrames(f *testing.F) {
	f.Add(framesOf(1, nil, []byte("12345678"), []byte{1}), false)
	f.Add(append(framesOf(1, nil), appendPrefix(nil, kindLeave, chunk{})...), true)
	f.Add(framesOf(1, nil, []byte("123456789")), true)
	f.Add(framesOf(2, nil, nil, nil, nil), true)
	f.Add(appendPrefix(nil, kindChunk, chunk{tag: wire.TagOf(1, 1, 2), total: chunkBytes + 10, index: 1}), true)
	f.Add([]byte("MW\x01\x00 and more"), false)
	frame := chunk{tag: wire.TagOf(1, 1, 2), total: chunkBytes + 10, at: memory.At(loan.data[:])}
	lent := appendPrefix(nil, kindLent, frame)
	f.Add(lent, true)
	if l, ok := memory.Lends(&loan.proof); ok {
		all := append(appendPrefix(nil, kindOffer, offer(l)), framesOf(1, nil, []byte("12345678"))...)
		f.Add(slices.Concat(all, lent, lent), true)
		frame.at = 8
		f.Add(slices.Concat(all, appendPrefix(nil, kindLent, frame)), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, mend bool) {
		if mend {
			text = mended(text)
		}
		s := newSource()
		var ended [2][4]atomic.Int32
		for edge := range ended {
			for n, size := range []int{0, 8, chunkBytes + 10, 1} {
				e := wire.Edge{ID: uint32(edge + 1), From: 0, To: 1}
				s.post(e, uint32(n), bufferOf(make([]byte, size)), func(error) { ended[edge][n].Add(1) })
			}
		}
		over := make(chan error, 1)
		go func() { over <- s.read(said{Reader: bytes.NewReader(text)}, loan.proof, newTarget(usual.lent)) }()
		for done := false; !done; {
			select {
			case <-over:
				done = true
			case <-time.After(time.Millisecond):
				s.mu.Lock()
				stuck := s.waiting > 0 // readers wait for a receive that is never posted
				s.mu.Unlock()
				if stuck {
					s.end(io.EOF)
				}
			}
		}
		s.end(io.EOF)
		for edge := range ended {
			for n := range ended[edge] {
				if k := ended[edge][n].Load(); k != 1 {
					t.Errorf("receive %d of edge %d ended %d times", n, edge, k)
				}
			}
		}
	})
}

// said is a connection on which the other end sends given bytes.
type said struct {
	net.Conn // nil
	io.Reader
}

func (s said) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s said) Write(b []byte) (int, error) { return len(b), nil }
func (s said) SetDeadline(time.Time) error { return nil }

// FuzzHandshake: no connection is accepted without the token, whatever is sent. A hello that is accepted is read as it
// was written.
func FuzzHandshake(f *testing.F) {
	f.Add(helloOf(func(*hello) {}))
	f.Add(append(helloOf(func(h *hello) { h.service = Control }), make([]byte, 32)...))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	e := &Endpoint{config: Config{Token: token}, limits: usual}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _, p, err := e.receive(said{Reader: bytes.NewReader(text)})
		if err == nil || p.listener != nil || p.lender != nil {
			t.Fatal("a stranger was let in")
		}
		if len(text) < helloBytes {
			return
		}
		if h, err := readHello(text[:helloBytes]); err == nil && !bytes.Equal(h.encode(), text[:helloBytes]) {
			t.Errorf("a hello is %x; written again it is %x", text[:helloBytes], h.encode())
		}
	})
}

// FuzzAnswers: a dialler detects a listener that does not know the token, whatever the listener answers. The dialler
// reads no more than it may.
func FuzzAnswers(f *testing.F) {
	var right bytes.Buffer
	if answer(&right, challenge, 0, make([]byte, 32)) != nil || answer(&right, welcome, 0, make([]byte, 32)) != nil {
		f.Fatal("no answer")
	}
	f.Add(right.Bytes())
	f.Add([]byte("MWTA\x03\x01\x02\x00no"))
	f.Add([]byte("SSH-2.0-OpenSSH"))
	e := &Endpoint{config: Config{Token: token}, limits: usual}
	f.Fuzz(func(t *testing.T, text []byte) {
		in := bytes.NewReader(text)
		if _, _, err := e.greet(said{Reader: in}, hello{service: Control, streams: 1}); err == nil {
			t.Fatal("a false listener was believed")
		}
		if n := len(text) - in.Len(); n > 2*headBytes+nonceBytes+mostText {
			t.Errorf("%d bytes were read", n)
		}
	})
}
