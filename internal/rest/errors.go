package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/errorform"
)

// Shape is a form of error bodies.
type Shape uint8

// The forms of error bodies.
const (
	ShapeDefault Shape = iota // {error, message, request_id, details?}
	ShapeTenant               // {error, message, tenant_id?, ...}
	ShapeDetail               // {detail}
	ShapeEditor               // {success, message, errors}
	ShapeOPA                  // {code, message}, as in OPA's REST API
	ShapeAuthZEN              // a message string
	ShapeOAuth                // {error, error_description} (RFC 6749 section 5.2)
	ShapeSCIM                 // {schemas, status, scimType?, detail} (RFC 7644 section 3.12)
)

// areaOf returns the area of a canonical path.
func (r *Router) areaOf(path string) Area {
	for _, a := range r.cfg.Areas {
		if IsBelow(path, a.Prefix) {
			return a
		}
	}
	return Area{}
}

// statuses maps kinds to statuses.
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

// status returns the status of kind k. Only the default and the tenant shape use 422; in the others
// an invalid body is a 400.
func (s Shape) status(k fault.Kind) int {
	if k == fault.Invalid && s != ShapeDefault && s != ShapeTenant {
		return http.StatusBadRequest
	}
	if k == fault.UnsupportedMedia && s == ShapeAuthZEN {
		return http.StatusBadRequest // AuthZEN has no 415
	}
	if int(k) < len(statuses) {
		return statuses[k]
	}
	return http.StatusInternalServerError
}

// status returns the status of kind k in an area.
func (a Area) status(k fault.Kind) int {
	if k == fault.Invalid && a.Unprocessable {
		return http.StatusUnprocessableEntity
	}
	return a.Errors.status(k)
}

// namesBadValue reports whether one of the errors is at a member in BadValues.
func (op *Op) namesBadValue(offences []fault.Detail) bool {
	return slices.ContainsFunc(offences, func(d fault.Detail) bool { return slices.Contains(op.BadValues, d.Pointer) })
}

// AsFault turns any error into a fault. The fault of an unexpected error hides its cause.
func AsFault(err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Unavailable, "timeout", "this took too long and was cancelled").After(time.Second).Because(err)
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

// answer is the answer for a fault.
type answer struct {
	fault  *fault.Error
	shape  Shape
	id     string
	status int
}

// headers sets the header fields of the answer.
func (a *answer) headers(h http.Header) {
	if a.fault.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(a.fault.RetryAfter), 10))
	}
	if a.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="gatehouse"`)
	}
	h["Cache-Control"] = noStore
}

// MarshalJSON renders the body in its shape.
func (a *answer) MarshalJSON() ([]byte, error) {
	f := a.fault
	switch a.shape {
	case ShapeAuthZEN:
		return Encode(sentence(f))
	case ShapeOPA:
		return Encode(OPAError{Code: errorform.OPACode(a.status), Message: sentence(f)})
	case ShapeEditor:
		body := map[string]any{"success": false, "message": f.Message, "errors": Details(f)}
		merge(body, f.Fields)
		if hasPlainMembers(f) {
			merge(body, a.plain())
		}
		return Encode(body)
	case ShapeDetail:
		body := map[string]any{"detail": sentence(f)}
		if hasPlainMembers(f) {
			merge(body, a.plain())
		}
		return Encode(body)
	case ShapeTenant:
		return Encode(a.plain())
	case ShapeSCIM:
		return Encode(errorform.SCIM(a.status, f.Code, sentence(f)))
	case ShapeOAuth:
		body := a.plain()
		body["error_description"], body["request_id"] = sentence(f), a.id
		return Encode(body)
	default:
		body := a.plain()
		body["request_id"] = a.id
		return Encode(body)
	}
}

// hasPlainMembers reports whether the body of f has the members of the default shape in all areas,
// in addition to those of the area's own shape.
func hasPlainMembers(f *fault.Error) bool {
	return f.Kind == fault.RateLimited || f.Code == "tenant_access_denied" || f.Code == "tenant_not_found"
}

// plain returns the members that the tenant shape and the default shape have in common.
func (a *answer) plain() map[string]any {
	f := a.fault
	body := map[string]any{}
	maps.Copy(body, f.Fields)
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

// Details returns the offences of f, at least one.
func Details(f *fault.Error) []fault.Detail {
	if len(f.Details) > 0 {
		return f.Details
	}
	return []fault.Detail{{Message: f.Message}}
}

// sentence returns the message and the offences in one string.
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

// media returns the media type of error bodies, as a value of Content-Type.
func (s Shape) media() []string {
	if s == ShapeSCIM {
		return SCIMMedia
	}
	return JSONMedia
}
