package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// load sends prepared HTTP/1.1 requests over kept connections, and reads the answers with as little
// work as possible, because it uses the cores that it measures. So it is one thread over
// non-blocking sockets, like wrk, instead of a goroutine for each connection.
type load struct {
	addr     string
	requests [][]byte
	conns    int
	length   time.Duration
	// accept returns an error for an answer that does not count. It ends the run.
	accept func(status int, body []byte) error
}

// figures are the results of one run.
type figures struct {
	requests int
	seconds  float64
	p50, p99 time.Duration
}

func (f figures) perSecond() float64 { return float64(f.requests) / f.seconds }

// wire is one connection of a load, with one request at a time.
type wire struct {
	fd    int
	at    int    // the next request
	rest  []byte // what is still to be sent of this one
	got   []byte
	began time.Time
}

// run drives all connections until the time is up. Each connection walks the
// requests from its own starting point.
func (l load) run(ctx context.Context) (figures, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wires := make([]*wire, l.conns)
	polls := make([]unix.PollFd, l.conns)
	for i := range wires {
		fd, err := dial(l.addr)
		if err != nil {
			return figures{}, err
		}
		defer unix.Close(fd) //nolint:errcheck // nothing is to come any more
		wires[i] = &wire{fd: fd, at: i * len(l.requests) / l.conns, got: make([]byte, 0, 64<<10)}
	}
	times := make([]time.Duration, 0, 1<<18)
	start := time.Now()
	for i, w := range wires {
		if err := l.next(w); err != nil {
			return figures{}, err
		}
		polls[i] = unix.PollFd{Fd: int32(w.fd), Events: w.waitsFor()}
	}
	for end := start.Add(l.length); ctx.Err() == nil && time.Now().Before(end); {
		if _, err := unix.Poll(polls, 100); err != nil && !errors.Is(err, unix.EINTR) {
			return figures{}, err
		}
		for i, w := range wires {
			if polls[i].Revents == 0 {
				continue
			}
			if err := l.step(w, &times); err != nil {
				return figures{}, err
			}
			polls[i].Events = w.waitsFor()
		}
	}
	if err := ctx.Err(); err != nil {
		return figures{}, err
	}
	took := time.Since(start).Seconds()
	if len(times) == 0 {
		return figures{}, errors.New("no request was answered")
	}
	slices.Sort(times)
	return figures{requests: len(times), seconds: took, p50: times[len(times)/2], p99: times[len(times)*99/100]}, nil
}

// dial opens a non-blocking connection that no poller of the runtime looks after.
func dial(addr string) (int, error) {
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
	if err == nil {
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetNonblock(fd, true))
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func (w *wire) waitsFor() int16 {
	if len(w.rest) > 0 {
		return unix.POLLIN | unix.POLLOUT
	}
	return unix.POLLIN
}

// next begins a request.
func (l load) next(w *wire) error {
	w.rest, w.began = l.requests[w.at%len(l.requests)], time.Now()
	w.at++
	return w.send()
}

// send sends what the socket takes.
func (w *wire) send() error {
	for len(w.rest) > 0 {
		n, err := unix.Write(w.fd, w.rest)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		w.rest = w.rest[n:]
	}
	return nil
}

// step does what a connection is ready for; with an answer it notes how long it
// took and begins the next request.
func (l load) step(w *wire, times *[]time.Duration) error {
	if err := w.send(); err != nil {
		return err
	}
	if len(w.got) == cap(w.got) {
		w.got = slices.Grow(w.got, cap(w.got))
	}
	n, err := unix.Read(w.fd, w.got[len(w.got):cap(w.got)])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%s hung up", l.addr)
	}
	w.got = w.got[:len(w.got)+n]
	status, body, whole, err := parseAnswer(w.got)
	if err != nil || !whole {
		return err
	}
	*times = append(*times, time.Since(w.began))
	if err := l.accept(status, body); err != nil {
		return err
	}
	w.got = w.got[:0]
	return l.next(w)
}

// parseAnswer reads the answer that data is, one with a length or in chunks. It
// is not whole while bytes are missing.
func parseAnswer(data []byte) (status int, _ []byte, whole bool, err error) {
	head, rest, found := bytes.Cut(data, []byte("\r\n\r\n"))
	if !found {
		return 0, nil, false, nil
	}
	line, head, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 {
		return 0, nil, false, fmt.Errorf("short status line %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, false, fmt.Errorf("status line %q", line)
	}
	length := 0
	for len(head) > 0 {
		line, head, _ = bytes.Cut(head, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, false, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			body, whole, err := parseChunks(rest)
			return status, body, whole, err
		}
	}
	if len(rest) < length {
		return 0, nil, false, nil
	}
	return status, rest[:length], true, nil
}

// parseChunks gathers a body in chunks.
func parseChunks(data []byte) (body []byte, whole bool, err error) {
	for {
		line, rest, found := bytes.Cut(data, []byte("\r\n"))
		if !found {
			return nil, false, nil
		}
		n, err := strconv.ParseInt(string(line), 16, 32)
		if err != nil {
			return nil, false, err
		}
		if len(rest) < int(n)+2 {
			return nil, false, nil
		}
		body, data = append(body, rest[:n]...), rest[n+2:]
		if n == 0 {
			return body, true, nil
		}
	}
}

// post prepares one request.
func post(host, path string, header map[string]string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, host, len(body))
	for k, v := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", k, v)
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// get prepares one request without a body.
func get(host, path string, header map[string]string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, host)
	for k, v := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", k, v)
	}
	b.WriteString("\r\n")
	return b.Bytes()
}
