package tcp

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// farewell limits how long closing a connection waits to send its last message.
const farewell = 100 * time.Millisecond

// Conn is a connection whose other end has proved that it knows the token. The holder must close it.
type Conn struct {
	net.Conn     // with TLS, the encrypted connection
	From     int // for an accepted connection: the process that dialled
	raw      net.Conn
	e        *Endpoint
	proof    memory.Proof // the dialler lends memory as long as it keeps this proof in its own memory

	mu    sync.Mutex
	cause error // why the connection was cut
}

// Read reads from the connection. If the Endpoint has cut it, the error says why.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.why(err)
}

// Write writes to the connection. If the Endpoint has cut it, the error says why.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.why(err)
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.e.forget(c)
	return c.Conn.Close()
}

// offers tells the other end that this process lends its memory, if both may be on the same host.
func (c *Conn) offers() {
	here, _ := c.LocalAddr().(*net.TCPAddr)
	there, _ := c.RemoteAddr().(*net.TCPAddr)
	if here == nil || there == nil || !here.IP.Equal(there.IP) {
		return
	}
	loan, ok := memory.Lends(&c.proof)
	if !ok {
		c.e.unread(errors.New("this process's is read for no other"))
		return
	}
	_, _ = c.Write(appendPrefix(nil, kindOffer, offer(loan))) // if this write fails, later ones fail too
}

// why returns the reason why the connection was cut, or err if it was not.
func (c *Conn) why(err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return err
}

// blame records why later calls fail. The first reason stays.
func (c *Conn) blame(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = err
	}
}

// cut closes the connection at once, without a last message.
func (c *Conn) cut(err error) {
	c.blame(err)
	c.e.forget(c)
	c.raw.Close()
}

// leave closes the connection properly, with a last message. No other goroutine may write to it.
func (c *Conn) leave() {
	_ = c.SetWriteDeadline(time.Now().Add(farewell))
	_, _ = c.Conn.Write(appendPrefix(nil, kindLeave, chunk{}))
	c.e.forget(c)
	c.raw.Close()
}
