package rest

import (
	"io"
	"net/http"
	"time"
)

// A request may be refused while its body is still arriving. Many clients write all of it before
// they read, and lose the answer if the connection is closed meanwhile. So the answer is sent at
// once, and the rest of the body is discarded for a while before the connection ends.
const (
	lingerTime  = 3 * time.Second
	lingerBytes = 64 << 20
	lingerFrom  = 256 << 10 // net/http itself discards this much
)

// bodyPending prepares a refusal, before its header is written, if much of the body may still be
// arriving. If it returns true, call drain after the answer. A client that expects "100 Continue"
// (RFC 9110 section 10.1.1) has not sent the body yet.
func (x *exchange) bodyPending() bool {
	req := x.req
	if req == nil || req.ContentLength >= 0 && req.ContentLength <= lingerFrom || req.Header.Get("Expect") != "" {
		return false
	}
	if http.NewResponseController(x.ResponseWriter).EnableFullDuplex() != nil {
		return false // not a connection of net/http
	}
	x.Header().Set("Connection", "close")
	return true
}

// drain sends the answer and discards the rest of the body.
func (x *exchange) drain() {
	x.releaseRoom()
	c := http.NewResponseController(x.ResponseWriter)
	if c.Flush() != nil || c.SetReadDeadline(x.r.cfg.ticks()().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, x.req.Body, lingerBytes) // the connection ends in any case
}
