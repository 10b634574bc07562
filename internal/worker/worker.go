// Package worker runs Rego that authors wrote in processes that can be killed.
//
// A context deadline inside our own process is no limit: some built-ins cannot
// be cancelled, and memory that an evaluation takes is the server's memory.
// So validate and test hand the source to a child (`gatehouse worker`), which
// speaks length-prefixed JSON on its standard streams, has no environment of ours, a
// memory cap of its own, and is killed when its time is up:
//
//	caller ──► Pool ──► process ──stdin──► Main ──► lang.Check, Linter, RunTests
//	                 ◄──stdout──           └─ watches its own heap, exits over the cap
//	                 └─ kills at the deadline; the next call starts a new one
//
// A process serves one request at a time and is kept warm between requests.
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
	"github.com/gatehouse-dev/gatehouse/internal/rerun"
)

// Operations of the protocol.
const (
	opValidate = "validate"
	opLint     = "lint"
)

// maxFrame bounds one message: a source of 1 MiB with its test cases, or 10 MiB of files.
const maxFrame = 24 << 20

// exitMemory is the exit code of a child that went over its memory cap.
const exitMemory = 86

// Validation is the outcome of validating a control's source (POST /policies/validate).
type Validation struct {
	// Valid is true when the source parses and compiles with our capabilities.
	Valid bool `json:"valid"`
	// Errors stop a control from being stored; each has a line and a column.
	Errors []lang.Issue `json:"errors"`
	// Warnings come from the linter and stop nothing.
	Warnings []lang.Issue `json:"warnings"`
}

type request struct {
	Op     string           `json:"op"`
	Name   string           `json:"name,omitempty"`
	Source string           `json:"source"`
	Cases  []suite.TestCase `json:"cases,omitempty"`
	// Data is what the cases need of data, once the child has said it.
	Data json.RawMessage `json:"data,omitempty"`
	// Modules are the files of test_modules.
	Modules []suite.Module `json:"modules,omitempty"`

	// Replay and Chunks open a replay; see replay.go.
	Replay *rerun.Spec `json:"replay,omitempty"`
	Chunks int         `json:"chunks,omitempty"`
	// PastChunks are those with what the resources were; they come last.
	PastChunks int `json:"past_chunks,omitempty"`
	// Trial is what is simulated, Sources whose attributes are asked for (simulate.go).
	Trial   *trial   `json:"trial,omitempty"`
	Sources []string `json:"sources,omitempty"`
	// Unpack is for opUnpack (unpack.go).
	Unpack *gitpack.Request `json:"unpack,omitempty"`
	// Libraries are what the source may import.
	Libraries []lang.Library `json:"libraries,omitempty"`
}

type reply struct {
	Tests []suite.TestResult `json:"tests,omitempty"`
	// Needs are the paths below data without which the cases cannot run.
	Needs  [][]string   `json:"needs,omitempty"`
	Issues []lang.Issue `json:"issues,omitempty"`
	// Modules is the outcome of test_modules.
	Modules *suite.ModuleReport `json:"modules,omitempty"`
	Files   []gitpack.File      `json:"files,omitempty"`
	Error   string              `json:"error,omitempty"`
	// Caught are the panics that the child recovered.
	Caught []caught `json:"caught,omitempty"`

	// Refused and Part are a replay's.
	Refused    []rerun.Refused    `json:"refused,omitempty"`
	Part       *rerun.Part        `json:"part,omitempty"`
	Tried      *tried             `json:"tried,omitempty"`
	Attributes [][]lang.Attribute `json:"attributes,omitempty"`
}

func writeFrame(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it would make ten megabytes of sources sixty
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
