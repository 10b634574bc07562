package api

import (
	"io"
	"net/http"
	"time"
)

// A request that is refused while its body is still on the way: many clients
// write all of it before they read, and a connection that is closed on them
// loses them the answer. So the answer is sent at once, and what comes is thrown
// away for a while before the connection ends.
const (
	lingerTime  = 3 * time.Second
	lingerBytes = 64 << 20
	lingerFrom  = 256 << 10 // net/http itself throws away as much
)

// refusing prepares for a refusal before its header is written; true: linger is
// to follow when it is. Who waits to be bidden before he sends (RFC 9110,
// section 10.1.1) has nothing on the way.
func (x *exchange) refusing() bool {
	req := x.req
	if req == nil || req.ContentLength >= 0 && req.ContentLength <= lingerFrom || req.Header.Get("Expect") != "" {
		return false
	}
	if http.NewResponseController(x.ResponseWriter).EnableFullDuplex() != nil {
		return false // not a connection of net/http's
	}
	x.Header().Set("Connection", "close")
	return true
}

// linger sends what was written and takes what the caller still sends.
func (x *exchange) linger() {
	x.leaveRoom()
	c := http.NewResponseController(x.ResponseWriter)
	if c.Flush() != nil || c.SetReadDeadline(x.r.s.ticks()().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, x.req.Body, lingerBytes) // however it ends, the connection does too
}
