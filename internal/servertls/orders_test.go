package servertls

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// TestWaitFor: an order waits as long as the ACME server asks, but at least a minute and at most a
// day; an hour after a limit if the server names no time.
func TestWaitFor(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const limit, other = "urn:ietf:params:acme:error:rateLimited", "urn:ietf:params:acme:error:malformed"
	answer := func(status int, problem, after string) error {
		return fmt.Errorf("the order: %w", &acme.Error{StatusCode: status, ProblemType: problem, Header: http.Header{"Retry-After": {after}}})
	}
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"ten minutes":                    {answer(429, limit, "600"), 10 * time.Minute},
		"by a date":                      {answer(429, limit, now.Add(20*time.Minute).Format(http.TimeFormat)), 20 * time.Minute},
		"three hours":                    {answer(429, limit, "10800"), 3 * time.Hour},
		"by its status only":             {answer(429, other, "600"), 10 * time.Minute},
		"too busy, by its problem":       {answer(503, limit, "120"), 2 * time.Minute},
		"too busy, by its status":        {answer(503, other, "120"), 2 * time.Minute},
		"too busy, and no time":          {answer(503, other, ""), 0},
		"a second":                       {answer(429, limit, "1"), time.Minute},
		"a date that is over":            {answer(429, limit, now.Add(-time.Hour).Format(http.TimeFormat)), time.Hour},
		"a year":                         {answer(429, limit, "31536000"), 24 * time.Hour},
		"a number that is too large":     {answer(429, limit, "99999999999999999999"), time.Hour},
		"no time":                        {answer(429, limit, ""), time.Hour},
		"no header":                      {&acme.Error{StatusCode: 429, ProblemType: limit}, time.Hour},
		"a refusal that names a time":    {answer(403, other, "600"), 0},
		"a limit of ours":                {fault.New(fault.RateLimited, "rate_limit_exceeded", "later").After(5 * time.Second), 5 * time.Second},
		"an error that says nothing":     {errors.New("no route"), 0},
		"a negative time, which is none": {answer(429, limit, "-5"), time.Hour},
	} {
		if got := waitFor(c.err, now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
