package lsp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// The severities of diagnostics.
const (
	severityError   = 1
	severityWarning = 2
)

type published struct {
	URI         string       `json:"uri"`
	Version     *int64       `json:"version,omitempty"`
	Diagnostics []diagnostic `json:"diagnostics"`
}

// analyse checks changed documents, one at a time, until ctx ends. It checks only the newest
// version of each.
func (s *Server) analyse(ctx context.Context) {
	for {
		d, ok := s.nextDirty()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			}
			continue
		}
		issues := s.check(ctx, d)
		if ctx.Err() != nil {
			return
		}
		members := assist.Attributes(d.text)
		s.mu.Lock()
		held := s.documents[d.uri]
		current := held != nil && held.version == d.version && held.text == d.text
		if current {
			held.issues, held.checked = issues, d.version
			if members != nil {
				held.members = members
			}
		}
		s.mu.Unlock()
		if current {
			version := d.version
			s.notify("textDocument/publishDiagnostics", published{d.uri, &version, diagnostics(d.text, issues)})
		}
	}
}

func (s *Server) nextDirty() (document, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.dirty {
		delete(s.dirty, uri)
		if d := s.documents[uri]; d != nil {
			return *d, true
		}
	}
	return document{}, false
}

// maxRetries is how often a check that timed out is tried again.
const maxRetries = 3

// check returns the issues of a document. If the check itself fails, for example because it timed
// out or found no free worker, it returns that as a warning and retries later.
func (s *Server) check(ctx context.Context, d document) []lang.Issue {
	if d.large {
		return []lang.Issue{{Message: "the file is too large to be a control", Severity: lang.SeverityError, Rule: "source_limit"}}
	}
	v, err := s.Validate(ctx, d.text, s.allLibraries(ctx)...)
	if err != nil {
		s.Log.Warn("check", "error", err)
		message := fault.Message(err)
		switch {
		case d.retries < maxRetries:
			message += fmt.Sprintf("; trying again (%d of %d)", d.retries+1, maxRetries)
			s.retry(ctx, d)
		default:
			message += fmt.Sprintf("; gave up after %d tries, save the file to check it again", maxRetries+1)
		}
		return []lang.Issue{{Message: message, Severity: lang.SeverityWarning, Rule: "check"}}
	}
	issues := append(v.Errors, v.Warnings...)
	if strings.HasSuffix(d.uri, "_test.rego") {
		// A test refers to its control, which is in another file.
		issues = slices.DeleteFunc(issues, func(is lang.Issue) bool { return is.Rule == "data_reference" })
	}
	return issues
}

// retry queues a document again after a delay. If the text has changed by then, it does nothing,
// because the change has queued the document.
func (s *Server) retry(ctx context.Context, d document) {
	delay := cmp.Or(s.RetryDelay, 2*time.Second)
	s.tasks.Go(func() {
		if !pause.For(ctx, delay<<d.retries) {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if held := s.documents[d.uri]; held != nil && held.text == d.text {
			held.retries = d.retries + 1
			s.changed(held)
		}
	})
}

// diagnostics converts issues to diagnostics. Each covers the word at the position of the issue, or
// one character if there is no word.
func diagnostics(text string, issues []lang.Issue) []diagnostic {
	out := make([]diagnostic, 0, len(issues))
	for _, is := range issues {
		d := diagnostic{Range: extentOf(text, spanOf(text, is)), Severity: severityError, Code: is.Rule, Source: "gatehouse", Message: is.Message}
		if is.Severity == lang.SeverityWarning {
			d.Severity = severityWarning
		}
		out = append(out, d)
	}
	return out
}

func spanOf(text string, is lang.Issue) assist.Span {
	if is.Line < 1 {
		line, _, _ := strings.Cut(text, "\n")
		return assist.Span{Start: 0, End: len(strings.TrimRight(line, "\r"))}
	}
	start := assist.Offset(text, is.Line, is.Column)
	end := start
	for end < len(text) && wordByte(text[end]) {
		end++
	}
	if end == start && end < len(text) && text[end] != '\n' && text[end] != '\r' {
		_, n := utf8.DecodeRuneInString(text[end:])
		end += n
	}
	return assist.Span{Start: start, End: end}
}

func wordByte(c byte) bool {
	return c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
