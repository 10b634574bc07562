package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// area says which shape of error body a path has.
type area uint8

const (
	areaDefault area = iota // {error, message, request_id, details?}
	areaTenant              // {error, message, tenant_id?, ...}
	areaDetail              // {detail}: telemetry and simulator
	areaEditor              // {success, message, errors}
	areaOPA                 // {code, message}: OPA's REST API
	areaAuthZEN             // a message string
	areaOAuth               // {error, error_description} (RFC 6749 section 5.2)
)

// areas maps path prefixes to error bodies; the first that fits wins.
var areas = []struct {
	prefix string
	area   area
}{
	{root + "/tenants", areaTenant},
	{root + "/telemetry", areaDetail},
	{root + "/pis", areaDetail},
	{root + "/ide-integration", areaEditor},
	{root + "/auth/token", areaOAuth},
	{"/v1/data", areaOPA},
	{"/v1/batch", areaOPA},
	{"/v1/compile", areaOPA},
	{"/access/v1", areaAuthZEN},
}

// areaOf finds the area of a path after its alias has been resolved.
func areaOf(path string) area {
	for _, a := range areas {
		if under(path, a.prefix) {
			return a.area
		}
	}
	return areaDefault
}

// under reports whether path is prefix or lies below it.
func under(path, prefix string) bool {
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/')
}

// statuses is the one table from kind to status.
var statuses = [...]int{
	fault.Internal:         http.StatusInternalServerError,
	fault.BadRequest:       http.StatusBadRequest,
	fault.Unauthenticated:  http.StatusUnauthorized,
	fault.Forbidden:        http.StatusForbidden,
	fault.NotFound:         http.StatusNotFound,
	fault.MethodNotAllowed: http.StatusMethodNotAllowed,
	fault.Conflict:         http.StatusConflict,
	fault.Precondition:     http.StatusPreconditionFailed,
	fault.TooLarge:         http.StatusRequestEntityTooLarge,
	fault.UnsupportedMedia: http.StatusUnsupportedMediaType,
	fault.Misdirected:      http.StatusMisdirectedRequest,
	fault.Invalid:          http.StatusUnprocessableEntity,
	fault.RateLimited:      http.StatusTooManyRequests,
	fault.HeadersTooLarge:  http.StatusRequestHeaderFieldsTooLarge,
	fault.BadGateway:       http.StatusBadGateway,
	fault.Unavailable:      http.StatusServiceUnavailable,
	fault.GatewayTimeout:   http.StatusGatewayTimeout,
	fault.StorageFull:      http.StatusInsufficientStorage,
}

// status is the status of kind k in area a: the simulator, telemetry, the
// editors and the protocols of others know 400 where the rest says 422.
func (a area) status(k fault.Kind) int {
	if k == fault.Invalid && a != areaDefault && a != areaTenant {
		return http.StatusBadRequest
	}
	if k == fault.UnsupportedMedia && a == areaAuthZEN {
		return http.StatusBadRequest // AuthZEN has no 415
	}
	if int(k) < len(statuses) {
		return statuses[k]
	}
	return http.StatusInternalServerError
}

// asFault makes a fault of any error. What nobody foresaw says nothing of its cause.
func asFault(err error) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Unavailable, "timeout", "this took too long and was ended").After(time.Second).Because(err)
	}
	if errors.Is(err, context.Canceled) {
		return fault.Cancelled(err)
	}
	return fault.New(fault.Internal, "internal_error", "something went wrong on our side").Because(err)
}

// seconds rounds a wait up to whole seconds, at least one.
func seconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// answer is a fault on its way out. It implements huma's StatusError and
// HeadersError, so that typed handlers fail the way raw ones do.
type answer struct {
	fault  *fault.Error
	area   area
	id     string
	status int
}

// GetStatus implements huma.StatusError.
func (a *answer) GetStatus() int { return a.status }

// Error implements error. The cause is not part of it.
func (a *answer) Error() string { return a.fault.Code }

// GetHeaders implements huma.HeadersError.
func (a *answer) GetHeaders() http.Header {
	h := http.Header{}
	if a.fault.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(a.fault.RetryAfter), 10))
	}
	if a.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="gatehouse"`)
	}
	h.Set("Cache-Control", "no-store")
	return h
}

// MarshalJSON renders the body of the area.
func (a *answer) MarshalJSON() ([]byte, error) {
	f := a.fault
	switch a.area {
	case areaAuthZEN:
		return encode(sentence(f))
	case areaOPA:
		return encode(OPAError{Code: opaCode(a.status), Message: sentence(f)})
	case areaEditor:
		body := map[string]any{"success": false, "message": f.Message, "errors": details(f)}
		merge(body, f.Fields)
		if everywhere(f) {
			merge(body, a.plain())
		}
		return encode(body)
	case areaDetail:
		body := map[string]any{"detail": sentence(f)}
		if everywhere(f) {
			merge(body, a.plain())
		}
		return encode(body)
	case areaTenant:
		return encode(a.plain())
	case areaOAuth:
		body := a.plain()
		body["error_description"], body["request_id"] = sentence(f), a.id
		return encode(body)
	default:
		body := a.plain()
		body["request_id"] = a.id
		return encode(body)
	}
}

// everywhere tells the faults whose body the specification gives for all areas:
// those members stand beside the area's own.
func everywhere(f *fault.Error) bool {
	return f.Kind == fault.RateLimited || f.Code == "tenant_access_denied" || f.Code == "tenant_not_found"
}

// plain is what the tenant shape and the default one have in common.
func (a *answer) plain() map[string]any {
	f := a.fault
	body := map[string]any{}
	for name, value := range f.Fields {
		body[name] = value
	}
	body["error"], body["message"] = f.Code, f.Message
	if f.RetryAfter > 0 && f.Kind == fault.RateLimited {
		body["retry_after"] = seconds(f.RetryAfter)
	}
	if len(f.Details) > 0 {
		body["details"] = f.Details
	}
	return body
}

func merge(into, from map[string]any) {
	for name, value := range from {
		if _, ok := into[name]; !ok {
			into[name] = value
		}
	}
}

// details are the offences of f, never nil.
func details(f *fault.Error) []fault.Detail {
	if len(f.Details) > 0 {
		return f.Details
	}
	return []fault.Detail{{Message: f.Message}}
}

// sentence is message and offences in one string, for shapes that have but one.
func sentence(f *fault.Error) string {
	if len(f.Details) == 0 || len(f.Details) == 1 && f.Details[0].Message == f.Message {
		return f.Message
	}
	var b strings.Builder
	b.WriteString(f.Message)
	for i, d := range f.Details {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString("; ")
		}
		if d.Pointer != "" {
			fmt.Fprintf(&b, "%s: ", d.Pointer)
		}
		b.WriteString(d.Message)
	}
	return b.String()
}

// opaCode is the code that OPA gives for a status.
func opaCode(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "unauthorized"
	case http.StatusNotFound:
		return "resource_not_found"
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
		return "internal_error"
	default:
		return "invalid_parameter"
	}
}
