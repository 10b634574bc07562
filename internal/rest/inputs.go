package rest

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// JSON is an input or an output that consists of a JSON body.
type JSON[T any] struct{ Body T }

// Answer returns a body as the output of an operation.
func Answer[T any](body T, err error) (*JSON[T], error) { return &JSON[T]{body}, err }

// Page is the paging of lists: an input by itself, or embedded in one.
type Page struct {
	Skip  int `query:"skip" default:"0" minimum:"0" doc:"Number of entries to skip"`
	Limit int `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"Largest number of entries in the answer"`
}

// InEnvironment limits an operation to one environment: embed it in an input. The kit reads the
// parameter with the credential, so handlers find it in the scope.
type InEnvironment struct {
	Environment string `query:"environment" enum:"sandbox,production" doc:"Only this environment; absent: both. X-Environment has the same effect"`
}

// Window limits a log to a period: embed it in an input.
type Window struct {
	Start string `query:"start_date" minLength:"1" maxLength:"40" doc:"Start of the period: an ISO 8601 time or date"`
	End   string `query:"end_date" minLength:"1" maxLength:"40" doc:"End of the period, inclusive: an ISO 8601 time or date"`
}

// Scroll is the paging of logs, newest first: embed it in an input.
type Scroll struct {
	Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"Largest number of entries in the answer"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the previous answer"`
}

// Removed is the answer to deleting an object that cannot be restored.
type Removed struct {
	Message string `json:"message" doc:"What was done"`
	ID      int64  `json:"id" doc:"Id of the removed resource"`
}

// Period parses the window. A date without a time means the whole day.
func (w Window) Period() (start, end time.Time, err error) {
	if start, err = parseTime(w.Start, "start_date", 0); err != nil {
		return
	}
	if end, err = parseTime(w.End, "end_date", 24*time.Hour-time.Microsecond); err != nil {
		return
	}
	if !start.IsZero() && !end.IsZero() && end.Before(start) {
		return start, end, badParameter("invalid_parameter", "query.end_date", "end_date is before start_date")
	}
	return start, end, nil
}

func parseTime(text, name string, restOfDay time.Duration) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t.Add(restOfDay), nil
	}
	return time.Time{}, badParameter("invalid_parameter", "query."+name, name+" must be a time such as 2026-11-20T23:36:00Z, or a date")
}

// badParameter returns the fault for one parameter.
func badParameter(code, pointer, message string) error {
	e := BadRequest(code, "%s", message)
	e.Details = []fault.Detail{{Pointer: pointer, Message: message}}
	return e
}
