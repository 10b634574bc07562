// Package worker runs authors' Rego in processes that can be killed.
//
// A context deadline inside the server's own process is no limit: some built-in functions
// cannot be cancelled, and the memory that an evaluation takes is the server's. So the
// server hands the source to a child (`gatehouse worker`). The child speaks
// length-prefixed JSON on its standard streams, has an empty environment and a memory
// limit of its own, and is killed when its time is up:
//
//	caller ──► Pool ──► process ──stdin──► Main ──► lang.Check, Linter, RunTests
//	                 ◄──stdout──           └─ watches its own heap, exits over the cap
//	                 └─ kills at the deadline; the next call starts a new one
//
// A child serves one request at a time and stays warm between requests.
package worker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gatehouse-dev/gatehouse/internal/gitpack"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
)

// The operations of the protocol.
const (
	opValidate = "validate"
	opLint     = "lint"
)

// maxFrame limits one message: a source of 1 MiB with its test cases, or 10 MiB of files.
const maxFrame = 24 << 20

// exitMemory is the exit code of a child that exceeded its memory limit.
const exitMemory = 86

// Validation is the result of validating a source (POST /policies/validate).
type Validation struct {
	// Valid is true if the source parses and compiles.
	Valid bool `json:"valid"`
	// Errors keep a control from being stored. Each has a line and a column.
	Errors []lang.Issue `json:"errors"`
	// Warnings come from the linter and do not keep a control from being stored.
	Warnings []lang.Issue `json:"warnings"`
}

type request struct {
	Op     string           `json:"op"`
	Name   string           `json:"name,omitempty"`
	Source string           `json:"source"`
	Cases  []suite.TestCase `json:"cases,omitempty"`
	// Data is what the test cases need below data, once the child has reported it.
	Data json.RawMessage `json:"data,omitempty"`
	// Modules are the files for test_modules.
	Modules []suite.Module `json:"modules,omitempty"`

	// Replay and Chunks start a replay (replay.go).
	Replay *compare.Spec `json:"replay,omitempty"`
	Chunks int           `json:"chunks,omitempty"`
	// PastChunks are the chunks with earlier versions of resources. They come last.
	PastChunks int `json:"past_chunks,omitempty"`
	// Simulation is a simulation. Sources are those whose attributes are listed (simulate.go).
	Simulation *simulationInput `json:"trial,omitempty"`
	Sources    []string         `json:"sources,omitempty"`
	// Unpack is the request of opUnpack (unpack.go).
	Unpack *gitpack.Request `json:"unpack,omitempty"`
	// Libraries are what the source may import.
	Libraries []lang.Library `json:"libraries,omitempty"`
}

type reply struct {
	Tests []suite.TestResult `json:"tests,omitempty"`
	// Needs are the paths below data that the test cases need.
	Needs  [][]string   `json:"needs,omitempty"`
	Issues []lang.Issue `json:"issues,omitempty"`
	// Modules is the result of test_modules.
	Modules *suite.ModuleReport `json:"modules,omitempty"`
	Files   []gitpack.File      `json:"files,omitempty"`
	Error   string              `json:"error,omitempty"`
	// Panics are the panics that the child recovered.
	Panics []childPanic `json:"caught,omitempty"`

	// Refused and Part belong to replays.
	Refused    []compare.Refused  `json:"refused,omitempty"`
	Part       *compare.Part      `json:"part,omitempty"`
	Simulated  *simulationResult  `json:"tried,omitempty"`
	Attributes [][]lang.Attribute `json:"attributes,omitempty"`
}

func writeFrame(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // escaping would turn ten megabytes of sources into sixty
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	body := text.Bytes()
	if len(body) > maxFrame {
		return fmt.Errorf("frame of %d bytes is over the limit of %d", len(body), maxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err := w.Write(append(frame, body...))
	return err
}

func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("frame of %d bytes is over the limit of %d", n, maxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
