package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// load sends prepared HTTP/1.1 requests over kept connections and reads the
// answers with as little work as a client can do: on two cores the generator
// takes from what it measures, and it must take the same from everybody.
type load struct {
	addr     string
	requests [][]byte
	conns    int
	length   time.Duration
	// accept says whether an answer counts; the first that does not ends the run.
	accept func(status int, body []byte) error
}

// figures are what one run showed.
type figures struct {
	requests int
	seconds  float64
	p50, p99 time.Duration
}

func (f figures) perSecond() float64 { return float64(f.requests) / f.seconds }

// run drives all connections until the time is up. Each connection walks the
// requests from its own starting point.
func (l load) run(ctx context.Context) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, l.length)
	defer cancel()
	times := make([][]time.Duration, l.conns)
	errs := make([]error, l.conns)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range l.conns {
		wg.Add(1)
		go func() {
			defer wg.Done()
			times[i], errs[i] = l.connection(ctx, i*len(l.requests)/l.conns)
			if errs[i] != nil {
				cancel()
			}
		}()
	}
	wg.Wait()
	took := time.Since(start).Seconds()
	if err := errors.Join(errs...); err != nil {
		return figures{}, err
	}
	all := slices.Concat(times...)
	if len(all) == 0 {
		return figures{}, errors.New("no request was answered")
	}
	slices.Sort(all)
	return figures{requests: len(all), seconds: took, p50: all[len(all)/2], p99: all[len(all)*99/100]}, nil
}

func (l load) connection(ctx context.Context, at int) ([]time.Duration, error) {
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 16<<10)
	times := make([]time.Duration, 0, 1<<16)
	var body []byte
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := conn.Write(l.requests[at%len(l.requests)]); err != nil {
			return nil, err
		}
		status, b, err := readAnswer(in, body[:0])
		if err != nil {
			return nil, err
		}
		body = b
		times = append(times, time.Since(began))
		if err := l.accept(status, body); err != nil {
			return nil, err
		}
		at++
	}
	return times, nil
}

// readAnswer reads one answer with a length or in chunks.
func readAnswer(in *bufio.Reader, body []byte) (int, []byte, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, body, err
	}
	if len(line) < 12 {
		return 0, body, fmt.Errorf("short status line %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, body, fmt.Errorf("status line %q", line)
	}
	length, chunked := 0, false
	for {
		line, err = in.ReadSlice('\n')
		if err != nil {
			return 0, body, err
		}
		if len(line) <= 2 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, body, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if chunked {
		return readChunks(in, status, body)
	}
	body = slices.Grow(body, length)[:length]
	_, err = io.ReadFull(in, body)
	return status, body, err
}

func readChunks(in *bufio.Reader, status int, body []byte) (int, []byte, error) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, body, err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return 0, body, err
		}
		at := len(body)
		body = slices.Grow(body, int(n)+2)[:at+int(n)+2]
		if _, err := io.ReadFull(in, body[at:]); err != nil {
			return 0, body, err
		}
		body = body[:at+int(n)]
		if n == 0 {
			return status, body, nil
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
